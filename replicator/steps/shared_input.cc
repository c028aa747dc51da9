#include "replicator/steps/shared_input.h"

#include <cstring>
#include <sstream>
#include <utility>

#include "base/check.h"

namespace replicant::replicator {
namespace {

// Describes batches to the processes without a pipeline. Names have no white
// space.
std::string Encode(const std::vector<InputSpec>& specs) {
  std::ostringstream text;
  for (const InputSpec& spec : specs) {
    text << spec.name << ' ' << DTypeName(spec.dtype) << ' '
         << spec.shape.rank();
    for (const int64_t dim : spec.shape.dims()) text << ' ' << dim;
    text << '\n';
  }
  return text.str();
}

std::vector<InputSpec> DecodeSpecs(const std::string& text) {
  std::istringstream in(text);
  std::vector<InputSpec> specs;
  std::string name;
  std::string dtype;
  size_t rank = 0;
  while (in >> name >> dtype >> rank) {
    std::vector<int64_t> dims(rank);
    for (int64_t& dim : dims) in >> dim;
    specs.push_back(
        {name, *ParseDType(dtype), Shape(std::span<const int64_t>(dims))});
  }
  return specs;
}

std::vector<MutableTensorView> ViewsOf(std::vector<HostTensor>& tensors) {
  std::vector<MutableTensorView> views;
  views.reserve(tensors.size());
  for (HostTensor& tensor : tensors) views.push_back(tensor.mutable_view());
  return views;
}

void CopyBatch(TensorView from, MutableTensorView to) {
  if (to.size_bytes() > 0) std::memcpy(to.data(), from.data(), to.size_bytes());
}

}  // namespace

SharedInput::SharedInput(const Replicator* owner, Processes* processes,
                         const LocalReplicas& replicas, const InputFn& input_fn,
                         InputMode mode)
    : owner_(owner),
      processes_(*processes),
      replicas_(replicas),
      is_broadcast_(mode == InputMode::kSingle && processes->size() > 1) {
  InputContext context{.num_replicas = replicas.total};
  switch (mode) {
    case InputMode::kSingle:
      AddFeed(input_fn, context, 0);
      break;
    case InputMode::kPerWorker:
      context.pipeline_id = processes->rank();
      context.num_pipelines = processes->size();
      AddFeed(input_fn, context, replicas.first);
      break;
    case InputMode::kPerReplica:
      context.num_pipelines = replicas.total;
      for (int i = 0; i < replicas.count; ++i) {
        context.pipeline_id = replicas.first + i;
        AddFeed(input_fn, context, context.pipeline_id);
      }
      break;
  }
}

void SharedInput::AddFeed(const InputFn& input_fn, const InputContext& context,
                          int first_replica) {
  Feed feed;
  feed.first_replica = first_replica;
  feed.num_replicas = context.num_replicas / context.num_pipelines;
  std::vector<InputSpec> specs;
  if (!is_broadcast_ || processes_.rank() == 0) {
    feed.pipeline = input_fn(context);
    specs = feed.pipeline->specs();
  }
  if (is_broadcast_) specs = DecodeSpecs(processes_.Broadcast(Encode(specs)));
  TakeSpecs(specs, &feed);
  feeds_.push_back(std::move(feed));
}

void SharedInput::TakeSpecs(const std::vector<InputSpec>& specs, Feed* feed) {
  specs_.clear();
  for (const InputSpec& spec : specs) {
    specs_.push_back(OfOneReplica(spec, feed->num_replicas));
    feed->batch.emplace_back(spec.dtype, spec.shape);
  }
  feed->views = ViewsOf(feed->batch);
}

NextResult SharedInput::Fetch(Clock::TimePoint deadline) {
  if (error_ahead_) std::rethrow_exception(std::exchange(error_ahead_, {}));
  for (Feed& feed : feeds_) {
    if (feed.is_filled || feed.pipeline == nullptr) continue;
    if (feed.is_ahead) {
      std::swap(feed.batch, feed.ahead);
      feed.views = ViewsOf(feed.batch);
      feed.pipeline->UseAhead();
      feed.is_ahead = false;
      feed.is_filled = true;
      continue;
    }
    const NextResult result = feed.pipeline->Next(deadline, feed.views);
    if (result != NextResult::kOk) return result;
    feed.is_filled = true;
  }
  return NextResult::kOk;
}

bool SharedInput::FetchAhead() noexcept {
  // steps that take turns would read ahead for each other
  if (num_steps_ > 1 || error_ahead_) return false;
  try {
    for (Feed& feed : feeds_) {
      if (feed.pipeline == nullptr || feed.is_ahead) continue;
      for (size_t i = feed.ahead.size(); i < feed.batch.size(); ++i) {
        feed.ahead.emplace_back(feed.batch[i].dtype(), feed.batch[i].shape());
      }
      if (feed.pipeline->NextAhead(Clock::Real().Now(), ViewsOf(feed.ahead)) !=
          NextResult::kOk) {
        return false;
      }
      feed.is_ahead = true;
    }
  } catch (...) {
    // of the next step, not of the one that computes
    error_ahead_ = std::current_exception();
    return false;
  }
  return !is_broadcast_;
}

void SharedInput::Use() {
  ++number_;
  for (Feed& feed : feeds_) {
    feed.is_filled = false;
    if (!is_broadcast_) continue;
    for (const MutableTensorView& view : feed.views) {
      processes_.Broadcast(view);
    }
  }
}

void SharedInput::Keep(size_t number) {
  for (Feed& feed : feeds_) {
    if (feed.kept.size() <= number) feed.kept.resize(number + 1);
    std::vector<HostTensor>& kept = feed.kept[number];
    for (size_t i = 0; i < feed.views.size(); ++i) {
      const MutableTensorView& view = feed.views[i];
      if (kept.size() <= i) kept.emplace_back(view.dtype(), view.shape());
      CopyBatch(view, kept[i].mutable_view());
    }
  }
}

void SharedInput::Recall(size_t number) {
  for (Feed& feed : feeds_) {
    for (size_t i = 0; i < feed.views.size(); ++i) {
      CopyBatch(feed.kept[number][i].view(), feed.views[i]);
    }
  }
}

void SharedInput::CopyRows(int local_replica,
                           std::span<const MutableTensorView> batch,
                           std::vector<HostTensor> Feed::*tensors) const {
  const int replica = replicas_.first + local_replica;
  for (const Feed& feed : feeds_) {
    if (replica < feed.first_replica ||
        replica >= feed.first_replica + feed.num_replicas) {
      continue;
    }
    const auto row = static_cast<size_t>(replica - feed.first_replica);
    for (size_t i = 0; i < batch.size(); ++i) {
      const size_t size = batch[i].size_bytes();
      if (size == 0) continue;
      std::memcpy(batch[i].data(),
                  (feed.*tensors)[i].bytes().data() + row * size, size);
    }
    return;
  }
  REPLICANT_CHECK(false, "no input for replica {}", replica);
}

}  // namespace replicant::replicator
