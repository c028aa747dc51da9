#include "core/replicator/strategies/shared_input.h"

#include <cstring>
#include <sstream>
#include <utility>

#include "core/base/check.h"

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

void Copy(TensorView from, MutableTensorView to) {
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
  for (HostTensor& tensor : feed->batch) {
    feed->views.push_back(tensor.mutable_view());
  }
}

NextResult SharedInput::Fetch(Clock::TimePoint deadline) {
  for (Feed& feed : feeds_) {
    if (feed.is_filled || feed.pipeline == nullptr) continue;
    const NextResult result = feed.pipeline->Next(deadline, feed.views);
    if (result != NextResult::kOk) return result;
    feed.is_filled = true;
  }
  return NextResult::kOk;
}

void SharedInput::Use() {
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
      Copy(view, kept[i].mutable_view());
    }
  }
}

void SharedInput::Recall(size_t number) {
  for (Feed& feed : feeds_) {
    for (size_t i = 0; i < feed.views.size(); ++i) {
      Copy(feed.kept[number][i].view(), feed.views[i]);
    }
  }
}

void SharedInput::CopyTo(int local_replica,
                         std::span<const MutableTensorView> batch) const {
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
      std::memcpy(batch[i].data(), feed.batch[i].bytes().data() + row * size,
                  size);
    }
    return;
  }
  REPLICANT_CHECK(false, "no input for replica {}", replica);
}

}  // namespace replicant::replicator
