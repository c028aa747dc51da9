#include "env/vector_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace replicant::env {
namespace {

bool HaveEqualSpecs(const Environment& a, const Environment& b) {
  if (a.action_spec().minimum != b.action_spec().minimum ||
      a.action_spec().maximum != b.action_spec().maximum) {
    return false;
  }
  const auto& arrays_a = a.observation_spec().arrays;
  const auto& arrays_b = b.observation_spec().arrays;
  return std::equal(arrays_a.begin(), arrays_a.end(), arrays_b.begin(),
                    arrays_b.end(), [](const ArraySpec& x, const ArraySpec& y) {
                      return x.name == y.name && x.shape == y.shape &&
                             x.dtype == y.dtype;
                    });
}

const Environment& FirstOf(
    const std::vector<std::unique_ptr<Environment>>& environments) {
  if (environments.empty()) {
    throw InvalidArgument(
        "VectorEnvironment: at least one environment is needed");
  }
  return *environments[0];
}

// Row `id` of a batch buffer; empty if the buffer is.
template <typename T>
std::span<T> Row(std::span<T> batch, int id, size_t size) {
  if (batch.empty()) return {};
  return batch.subspan(static_cast<size_t>(id) * size, size);
}

}  // namespace

VectorEnvironment::VectorEnvironment(
    std::vector<std::unique_ptr<Environment>> environments,
    const VectorOptions& options)
    : environments_(std::move(environments)),
      action_size_(FirstOf(environments_).action_spec().minimum.size()),
      state_size_(static_cast<size_t>(observation_spec().state_size())),
      pixels_size_(static_cast<size_t>(observation_spec().pixels_size())),
      frame_size_(static_cast<size_t>(observation_spec().frame_size)),
      actions_(environments_.size() * action_size_),
      jobs_(environments_.size()),
      all_ids_(environments_.size()),
      is_under_way_(environments_.size()),
      num_threads_(options.threads) {
  for (size_t i = 1; i < environments_.size(); ++i) {
    if (!HaveEqualSpecs(*environments_[0], *environments_[i])) {
      throw InvalidArgument(fmt::format(
          "VectorEnvironment: environments {} and 0 have different specs", i));
    }
  }
  if (options.threads < 0) {
    throw InvalidArgument(fmt::format(
        "VectorEnvironment: threads must be >= 0, got {}", options.threads));
  }
  std::iota(all_ids_.begin(), all_ids_.end(), 0);
  queue_.reserve(environments_.size());
  done_.reserve(environments_.size());
}

VectorEnvironment::~VectorEnvironment() {
  MutexLock lock(mutex_);
  is_stopping_ = true;
  work_arrived_.NotifyAll();
}

EnvironmentCounters VectorEnvironment::counters() const {
  EnvironmentCounters sum;
  for (const auto& environment : environments_) {
    const EnvironmentCounters& counters = environment->counters();
    sum.episodes += counters.episodes;
    sum.steps += counters.steps;
    sum.divergences += counters.divergences;
  }
  return sum;
}

void VectorEnvironment::Reset(const BatchBuffer& out) {
  CheckBatch(out);
  RunAll(Call::kReset, out);
}

void VectorEnvironment::Step(std::span<const double> actions,
                             const BatchBuffer& out) {
  CheckBatch(out);
  CheckActions(environments_.size(), actions);
  std::copy(actions.begin(), actions.end(), actions_.begin());
  RunAll(Call::kStep, out);
}

void VectorEnvironment::RunAll(Call call, const BatchBuffer& out) {
  if (num_under_way_ > 0) {
    throw InvalidArgument(fmt::format(
        "VectorEnvironment: {} environments are under way; hint: Receive() "
        "them first",
        num_under_way_));
  }
  for (const int id : all_ids_) Prepare(id, call, out);
  ParallelForEach(std::max(1, num_threads_), size(),
                  [&](int, int64_t id) { RunJob(static_cast<int>(id)); });
  ThrowFailureOf(all_ids_);
}

void VectorEnvironment::Send(std::span<const int> ids,
                             std::span<const double> actions,
                             const BatchBuffer& out) {
  CheckBatch(out);
  CheckActions(ids.size(), actions);
  CheckIds(ids);
  for (size_t k = 0; k < ids.size(); ++k) {
    const auto action = actions.subspan(k * action_size_, action_size_);
    const size_t row = static_cast<size_t>(ids[k]) * action_size_;
    std::copy(action.begin(), action.end(),
              actions_.begin() + static_cast<std::ptrdiff_t>(row));
    Prepare(ids[k], Call::kStep, out);
  }
  Submit(ids);
}

void VectorEnvironment::SendReset(std::span<const int> ids,
                                  const BatchBuffer& out) {
  CheckBatch(out);
  CheckIds(ids);
  for (const int id : ids) Prepare(id, Call::kReset, out);
  Submit(ids);
}

void VectorEnvironment::Receive(std::span<int> ids) {
  if (ids.size() > static_cast<size_t>(num_under_way_)) {
    throw InvalidArgument(fmt::format(
        "VectorEnvironment: {} environments requested, but {} are under way",
        ids.size(), num_under_way_));
  }
  {
    MutexLock lock(mutex_);
    wanted_ = ids.size();
    while (done_.size() < ids.size()) work_done_.Wait(mutex_);
    wanted_ = 0;
    std::copy_n(done_.begin(), ids.size(), ids.begin());
    done_.erase(done_.begin(),
                done_.begin() + static_cast<std::ptrdiff_t>(ids.size()));
  }
  for (const int id : ids) is_under_way_[static_cast<size_t>(id)] = false;
  num_under_way_ -= static_cast<int>(ids.size());
  ThrowFailureOf(ids);
}

void VectorEnvironment::ThrowFailureOf(std::span<const int> ids) {
  std::exception_ptr exception;
  for (const int id : ids) {
    Job& job = jobs_[static_cast<size_t>(id)];
    if (job.exception != nullptr) {
      exception = std::exchange(job.exception, nullptr);
    }
  }
  if (exception != nullptr) std::rethrow_exception(exception);
}

void VectorEnvironment::CheckBatch(const BatchBuffer& out) const {
  const size_t batch = environments_.size();
  const auto check = [](const char* what, size_t given, size_t wanted) {
    if (given == wanted) return;
    throw InvalidArgument(
        fmt::format("VectorEnvironment: {} buffer has {} elements, expected {}",
                    what, given, wanted));
  };
  if (!out.state.empty()) check("state", out.state.size(), batch * state_size_);
  if (!out.pixels.empty()) {
    check("pixels", out.pixels.size(), batch * pixels_size_);
  }
  if (!out.frames.empty()) {
    check("frames", out.frames.size(), batch * frame_size_);
  }
  check("steps", out.steps.size(), batch);
}

void VectorEnvironment::CheckActions(size_t count,
                                     std::span<const double> actions) const {
  if (actions.size() != count * action_size_) {
    throw InvalidArgument(
        fmt::format("VectorEnvironment: actions have {} elements, expected {}",
                    actions.size(), count * action_size_));
  }
  for (size_t k = 0; k < count; ++k) {
    CheckAction(actions.subspan(k * action_size_, action_size_), action_spec(),
                "VectorEnvironment");
  }
}

void VectorEnvironment::CheckIds(std::span<const int> ids) const {
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k] < 0 || ids[k] >= size()) {
      throw InvalidArgument(
          fmt::format("VectorEnvironment: environment {} is outside [0, {})",
                      ids[k], size()));
    }
    const auto others = ids.first(k);
    if (is_under_way_[static_cast<size_t>(ids[k])] ||
        std::find(others.begin(), others.end(), ids[k]) != others.end()) {
      throw InvalidArgument(fmt::format(
          "VectorEnvironment: environment {} is already under way", ids[k]));
    }
  }
}

void VectorEnvironment::Prepare(int id, Call call, const BatchBuffer& out) {
  jobs_[static_cast<size_t>(id)] = {
      .call = call,
      .out = {.state = Row(out.state, id, state_size_),
              .pixels = Row(out.pixels, id, pixels_size_),
              .frame = Row(out.frames, id, frame_size_)},
      .step = &out.steps[static_cast<size_t>(id)]};
  if (call == Call::kReset) return;
  environments_[static_cast<size_t>(id)]->Announce(
      {actions_.data() + static_cast<size_t>(id) * action_size_, action_size_});
}

void VectorEnvironment::Submit(std::span<const int> ids) {
  StartThreads();
  for (const int id : ids) is_under_way_[static_cast<size_t>(id)] = true;
  num_under_way_ += static_cast<int>(ids.size());
  {
    MutexLock lock(mutex_);
    queue_.insert(queue_.end(), ids.begin(), ids.end());
    work_arrived_.NotifyAll();
  }
  if (threads_.empty()) Work(/*waits=*/false);
}

void VectorEnvironment::StartThreads() {
  for (auto i = static_cast<int>(threads_.size()); i < num_threads_; ++i) {
    threads_.push_back(std::make_unique<Thread>(
        fmt::format("env-{}", i),
        [this](const Thread::StopToken& /*token*/) { Work(/*waits=*/true); }));
  }
}

void VectorEnvironment::RunJob(int id) {
  const auto i = static_cast<size_t>(id);
  Job& job = jobs_[i];
  try {
    const std::span<const double> action(actions_.data() + i * action_size_,
                                         action_size_);
    *job.step = job.call == Call::kReset
                    ? environments_[i]->Reset(job.out)
                    : environments_[i]->Step(action, job.out);
  } catch (...) {
    job.exception = std::current_exception();
    // half a step is no place to go on from
    environments_[i]->SeekEpisode(environments_[i]->counters().episodes);
    *job.step = {.step_type = StepType::kLast};
  }
}

void VectorEnvironment::Work(bool waits) {
  std::vector<int> share;
  share.reserve(environments_.size());
  while (TakeShare(share, waits)) {
    for (const int id : share) RunJob(id);
    HandBack(share);
  }
}

bool VectorEnvironment::TakeShare(std::vector<int>& share, bool waits) {
  MutexLock lock(mutex_);
  while (waits && queue_.empty() && !is_stopping_) work_arrived_.Wait(mutex_);
  if (is_stopping_ || queue_.empty()) return false;
  // a thread leaves work for the others, so that a slow environment delays few
  // environments of its share
  const auto threads = static_cast<size_t>(std::max(1, num_threads_));
  const size_t size = std::max<size_t>(1, queue_.size() / (2 * threads));
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(size);
  share.assign(queue_.begin(), end);
  queue_.erase(queue_.begin(), end);
  return true;
}

void VectorEnvironment::HandBack(std::span<const int> ids) {
  MutexLock lock(mutex_);
  done_.insert(done_.end(), ids.begin(), ids.end());
  if (wanted_ > 0 && done_.size() >= wanted_) work_done_.NotifyOne();
}

}  // namespace replicant::env
