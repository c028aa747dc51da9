#include "learner/workloads/agent/batch_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "env/interleave.h"

namespace replicant::learner {
namespace {

using replicator::NextResult;

// Indices of TransitionPipeline::specs().
enum : size_t {
  kObservation,
  kAction,
  kReward,
  kDiscount,
  kNext,
  kWeight,
  // with windows
  kWindowObservation,
  kWindowAction,
  kWindowReward,
  kWindowDiscount,
  kWindowMask,
  kWindowBootstrap
};

// Indices of the inputs that hold states. States in addition to pixels come
// last.
struct StateInputs {
  size_t now = kObservation;
  size_t next = kNext;
  size_t window = kWindowObservation;
};

StateInputs StateInputsOf(const agents::LearningSpec& spec) {
  if (!spec.task.has_pixels) return {};
  const size_t begin = spec.window == 0 ? kWeight + 1 : kWindowBootstrap + 1;
  return {.now = begin, .next = begin + 1, .window = begin + 2};
}

// [leading..., dims of one...]
Shape Stacked(std::vector<int64_t> leading, const Shape& one) {
  leading.insert(leading.end(), one.dims().begin(), one.dims().end());
  return Shape(std::span<const int64_t>(leading));
}

std::vector<replicator::InputSpec> MakeSpecs(const agents::LearningSpec& spec,
                                             int64_t batch_size) {
  const agents::TaskSpec& task = spec.task;
  const DType observation_dtype = task.observation_dtype();
  const Shape observations = Stacked({batch_size}, task.observation);
  const Shape per_row({batch_size});
  std::vector<replicator::InputSpec> specs = {
      {"observation", observation_dtype, observations},
      {"action", DType::kF32, Shape({batch_size, task.action_size()})},
      {"reward", DType::kF32, per_row},
      {"discount", DType::kF32, per_row},
      {"next_observation", observation_dtype, observations},
      {"importance_weight", DType::kF32, per_row}};
  const bool has_window = spec.window > 0;
  if (has_window) {
    const Shape per_step({batch_size, spec.window});
    specs.insert(specs.end(),
                 {{"window_observation", observation_dtype,
                   Stacked({batch_size, spec.window}, task.observation)},
                  {"window_action", DType::kF32,
                   Shape({batch_size, spec.window, task.action_size()})},
                  {"window_reward", DType::kF32, per_step},
                  {"window_discount", DType::kF32, per_step},
                  {"window_mask", DType::kF32, per_step},
                  {"window_bootstrap", DType::kF32, per_step}});
  }
  if (task.state_size == 0) return specs;
  const Shape states({batch_size, task.state_size});
  specs.insert(specs.end(), {{"state", DType::kF32, states},
                             {"next_state", DType::kF32, states}});
  if (has_window) {
    specs.push_back({"window_state", DType::kF32,
                     Shape({batch_size, spec.window, task.state_size})});
  }
  return specs;
}

void Copy(std::span<const std::byte> from, const MutableTensorView& to) {
  REPLICANT_CHECK_EQ(from.size(), to.size_bytes());
  std::memcpy(to.data(), from.data(), from.size());
}

// Part `i` of `n` equal parts.
template <typename Bytes>
Bytes PartOf(Bytes bytes, int64_t i, int64_t n) {
  const size_t size = bytes.size() / static_cast<size_t>(n);
  return bytes.subspan(static_cast<size_t>(i) * size, size);
}

std::span<std::byte> RowOf(const MutableTensorView& view, int64_t row) {
  return PartOf(std::span(view.data(), view.size_bytes()), row,
                view.shape()[0]);
}

}  // namespace

TransitionPipeline::TransitionPipeline(const agents::LearningSpec& spec,
                                       int64_t batch_size, int num_threads,
                                       replay::BatchSource* source)
    : spec_(spec),
      batch_size_(batch_size),
      threads_(static_cast<size_t>(num_threads)),
      source_(source),
      specs_(MakeSpecs(spec, batch_size)) {
  const replay::RowBytes row =
      form().BytesOf({.frame_bytes = spec.task.frame_bytes()});
  for (ThreadMemory& thread : threads_) {
    thread.frames = HostBuffer(static_cast<size_t>(row.total()));
  }
  for (Drawn* const drawn : {&used_, &ahead_}) {
    if (spec.window == 0) break;
    drawn->returns.resize(static_cast<size_t>(batch_size));
    drawn->discounts.resize(static_cast<size_t>(batch_size));
  }
}

NextResult TransitionPipeline::NextAhead(
    Clock::TimePoint deadline, std::span<const MutableTensorView> batch) {
  if (!source_->CanReadAhead()) return NextResult::kTimeout;
  return Draw(deadline, batch, &ahead_);
}

NextResult TransitionPipeline::Draw(Clock::TimePoint deadline, Views batch,
                                    Drawn* drawn) {
  replay::Batch& drawn_batch = drawn->batch;
  const Clock::TimePoint begin = Clock::Real().Now();
  const replay::ReadResult result = source_->Next(deadline, &drawn_batch);
  wait_seconds_ += ToSeconds(Clock::Real().Now() - begin);
  is_drained_ = result == replay::ReadResult::kPaused;
  // a paused source gives more batches later
  if (result == replay::ReadResult::kTimeout ||
      result == replay::ReadResult::kPaused) {
    return NextResult::kTimeout;
  }
  if (result == replay::ReadResult::kClosed) return NextResult::kEnd;
  if (drawn_batch.size != batch_size_ || drawn_batch.form != form()) {
    throw CommError(fmt::format(
        "the replay gives batches of {} {} with stacks of {}; the learner "
        "wants {} {} with stacks of {}",
        drawn_batch.size, ToString(drawn_batch.form), drawn_batch.form.stack,
        batch_size_, ToString(form()), form().stack));
  }
  if (spec_.window > 0) WriteSteps(drawn, batch);
  if (spec_.task.has_pixels) WriteFrames(drawn_batch, batch);
  if (spec_.task.num_state_values() > 0) WriteStates(drawn_batch, batch);
  const std::span actions = drawn_batch.actions.bytes();
  for (int64_t row = 0; row < batch_size_; ++row) {
    // the first of a window's
    std::ranges::copy(
        PartOf(PartOf(actions, row, batch_size_), 0, form().num_actions()),
        RowOf(batch[kAction], row).begin());
  }
  Copy(std::as_bytes(ReturnsOf(*drawn)), batch[kReward]);
  Copy(std::as_bytes(DiscountsOf(*drawn)), batch[kDiscount]);
  Copy(std::as_bytes(std::span(drawn_batch.weights)), batch[kWeight]);
  return NextResult::kOk;
}

int64_t TransitionPipeline::NumReturnSteps(int64_t num_steps) const {
  return std::min<int64_t>(spec_.n_step, num_steps);
}

void TransitionPipeline::WriteSteps(Drawn* drawn, Views batch) const {
  const replay::Batch& from = drawn->batch;
  Copy(from.actions.bytes(), batch[kWindowAction]);
  Copy(std::as_bytes(std::span(from.rewards)), batch[kWindowReward]);
  Copy(std::as_bytes(std::span(from.discounts)), batch[kWindowDiscount]);
  const std::span mask = batch[kWindowMask].Span<float>();
  const std::span bootstrap = batch[kWindowBootstrap].Span<float>();
  std::ranges::fill(mask, 0.0F);
  std::ranges::fill(bootstrap, 0.0F);
  const auto window = static_cast<size_t>(spec_.window);
  for (size_t row = 0; row < drawn->returns.size(); ++row) {
    const auto num_steps = static_cast<size_t>(from.num_steps[row]);
    const auto n = static_cast<size_t>(NumReturnSteps(from.num_steps[row]));
    const size_t first = row * window;
    std::ranges::fill(mask.subspan(first, num_steps), 1.0F);
    bootstrap[first + n - 1] = 1.0F;
    double sum = 0.0;
    double discount = 1.0;
    for (size_t i = first; i < first + n; ++i) {
      sum += discount * from.rewards[i];
      discount *= spec_.discount * from.discounts[i];
    }
    drawn->returns[row] = static_cast<float>(sum);
    drawn->discounts[row] = static_cast<float>(discount);
  }
}

void TransitionPipeline::WriteStates(const replay::Batch& from,
                                     Views batch) const {
  const StateInputs to = StateInputsOf(spec_);
  if (spec_.window == 0) {
    Copy(from.observations.bytes(), batch[to.now]);
    Copy(from.next_observations.bytes(), batch[to.next]);
    return;
  }
  const std::span all = from.observations.bytes();
  for (int64_t row = 0; row < batch_size_; ++row) {
    const std::span states = PartOf(all, row, batch_size_);
    const auto state = [&](int64_t i) {
      return PartOf(states, i, form().num_observations());
    };
    std::ranges::copy(state(0), RowOf(batch[to.now], row).begin());
    std::ranges::copy(
        state(NumReturnSteps(from.num_steps[static_cast<size_t>(row)])),
        RowOf(batch[to.next], row).begin());
    std::ranges::copy(states.subspan(state(0).size()),
                      RowOf(batch[to.window], row).begin());
  }
}

void TransitionPipeline::WriteFrames(const replay::Batch& from, Views batch) {
  // exceptions must not leave a thread of the OpenMP team
  std::vector<std::exception_ptr> failures(threads_.size());
  ParallelForEach(
      static_cast<int>(threads_.size()), from.size,
      [&](int thread, int64_t row) {
        const auto t = static_cast<size_t>(thread);
        try {
          ThreadMemory& memory = threads_[t];
          WriteRowOfFrames(
              from.FramesOf(row, memory.decoder, memory.frames.bytes()), row,
              from.num_steps[static_cast<size_t>(row)], batch);
        } catch (...) {
          failures[t] = std::current_exception();
        }
      });
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void TransitionPipeline::WriteRowOfFrames(const replay::Batch::Frames& frames,
                                          int64_t row, int64_t num_steps,
                                          Views batch) const {
  const int64_t stack = spec_.task.frame_stack;
  const std::span<std::byte> image = RowOf(batch[kObservation], row);
  const std::span<std::byte> next = RowOf(batch[kNext], row);
  if (spec_.window == 0) {
    env::InterleaveFrames(frames.frames, stack, image);
    env::InterleaveFrames(frames.next_frames, stack, next);
    return;
  }
  // frames [i, i + stack) are the stack of o_{t+i}
  const auto stack_of = [&](int64_t i) {
    const size_t frame =
        frames.frames.size() / static_cast<size_t>(form().num_frames());
    return frames.frames.subspan(static_cast<size_t>(i) * frame,
                                 static_cast<size_t>(stack) * frame);
  };
  env::InterleaveFrames(stack_of(0), stack, image);
  const std::span<std::byte> window = RowOf(batch[kWindowObservation], row);
  for (int64_t i = 1; i <= spec_.window; ++i) {
    const std::span<std::byte> out = PartOf(window, i - 1, spec_.window);
    if (i > num_steps) {
      std::ranges::fill(out, std::byte{0});
    } else {
      env::InterleaveFrames(stack_of(i), stack, out);
    }
  }
  std::ranges::copy(PartOf(window, NumReturnSteps(num_steps) - 1, spec_.window),
                    next.begin());
}

}  // namespace replicant::learner
