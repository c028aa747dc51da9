#include "learner/workloads/agent/transition_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "agents/transition_batch.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "learner/workloads/agent/agent_step.h"
#include "replay/table/n_step_return.h"

namespace replicant::learner {
namespace {

using replicator::NextResult;

// Images of fewer bytes may still be in a cache when the step reads them.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;

std::vector<replicator::InputSpec> MakeSpecs(const agents::LearningSpec& spec,
                                             int64_t batch_size,
                                             bool has_slots) {
  std::vector<replicator::InputSpec> specs;
  for (auto& tensor : has_slots ? ObservationSlots(spec, batch_size)
                                : agents::TransitionTensors(spec, batch_size)) {
    specs.push_back({std::move(tensor.name), tensor.dtype, tensor.shape});
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

// Draws steps[1] to steps[count - 1] from those behind steps[0], without
// replacement. A function of what a checkpoint restores: the item's shard,
// slot, age and number of draws, not its generation, which a restore changes.
void DrawOthers(const replay::Batch& batch, size_t row, int64_t count,
                std::span<int32_t> steps) {
  const auto age = static_cast<uint32_t>(batch.ages[row]);
  const auto times = static_cast<uint32_t>(batch.times_sampled[row]);
  const auto shard = static_cast<uint32_t>(batch.shards[row]);
  for (size_t i = 1; i < static_cast<size_t>(count); ++i) {
    const uint64_t random =
        Philox4x32({batch.keys[row].slot, age, times, static_cast<uint32_t>(i)},
                   {shard, 0})[0];
    std::swap(steps[i], steps[i + (random * (steps.size() - i) >> 32U)]);
  }
}

}  // namespace

TransitionPipeline::TransitionPipeline(const agents::LearningSpec& spec,
                                       int64_t batch_size, int num_threads,
                                       replay::BatchSource* source,
                                       ResidentFrames* frames)
    : spec_(spec),
      batch_size_(batch_size),
      threads_(static_cast<size_t>(num_threads)),
      source_(source),
      resident_(frames),
      specs_(MakeSpecs(spec, batch_size, frames != nullptr)) {
  const int64_t images_bytes =
      batch_size *
      form().BytesOf({.frame_bytes = spec.task.frame_bytes()}).total();
  if (images_bytes >= kStreamedBytes) stores_ = env::Stores::kStreamed;
  for (const agents::ImageSpec& image : spec.task.AllImages()) {
    const int64_t depth = spec.task.frame_stack;
    frames_.push_back(
        {.size = static_cast<size_t>(image.shape.num_elements() / depth),
         .pixel_bytes = static_cast<size_t>(image.shape[2] / depth)});
  }
  if (spec.window > 0) {
    REPLICANT_CHECK(spec.window_observations >= 1 &&
                        spec.window_observations <= spec.window,
                    "{} observations of windows of {} steps",
                    spec.window_observations, spec.window);
  }
  for (Drawn* const drawn : {&used_, &ahead_}) {
    if (spec.window == 0) break;
    drawn->returns.resize(static_cast<size_t>(batch_size));
    drawn->discounts.resize(static_cast<size_t>(batch_size));
    drawn->ahead.resize(
        static_cast<size_t>(batch_size * spec.window_observations));
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
  if (spec_.window > 0) {
    WriteSteps(drawn, batch);
    ChooseObservations(drawn, batch);
  }
  if (spec_.task.has_pixels) WriteFrames(*drawn, batch);
  if (spec_.task.num_state_values() > 0) WriteStates(*drawn, batch);
  const std::span actions = drawn_batch.actions.bytes();
  const MutableTensorView& action = ViewOf("action", batch);
  for (int64_t row = 0; row < batch_size_; ++row) {
    // the first of a window's
    std::ranges::copy(
        PartOf(PartOf(actions, row, batch_size_), 0, form().num_actions()),
        RowOf(action, row).begin());
  }
  Copy(std::as_bytes(ReturnsOf(*drawn)), ViewOf("reward", batch));
  Copy(std::as_bytes(DiscountsOf(*drawn)), ViewOf("discount", batch));
  Copy(std::as_bytes(std::span(drawn_batch.weights)),
       ViewOf("importance_weight", batch));
  if (spec_.has_prior) WritePriorWeights(drawn_batch, batch);
  return NextResult::kOk;
}

void TransitionPipeline::WritePriorWeights(const replay::Batch& from,
                                           Views batch) const {
  const auto num_prior =
      std::ranges::count(from.shards, replay::Batch::kPriorShard);
  const float weight =
      static_cast<float>(batch_size_) /
      static_cast<float>(std::max<std::ptrdiff_t>(1, num_prior));
  const std::span out = ViewOf("prior_weight", batch).Span<float>();
  std::ranges::fill(out, 0.0F);
  for (size_t row = 0; row < from.shards.size(); ++row) {
    if (from.shards[row] == replay::Batch::kPriorShard) out[row] = weight;
  }
}

const MutableTensorView& TransitionPipeline::ViewOf(std::string_view name,
                                                    Views batch) const {
  const auto found =
      std::ranges::find(specs_, name, &replicator::InputSpec::name);
  return batch[static_cast<size_t>(found - specs_.begin())];
}

int64_t TransitionPipeline::NumReturnSteps(int64_t num_steps) const {
  return std::min<int64_t>(spec_.n_step, num_steps);
}

void TransitionPipeline::WriteSteps(Drawn* drawn, Views batch) const {
  const replay::Batch& from = drawn->batch;
  Copy(from.actions.bytes(), ViewOf("window_action", batch));
  Copy(std::as_bytes(std::span(from.rewards)), ViewOf("window_reward", batch));
  Copy(std::as_bytes(std::span(from.discounts)),
       ViewOf("window_discount", batch));
  const std::span mask = ViewOf("window_mask", batch).Span<float>();
  std::ranges::fill(mask, 0.0F);
  const auto window = static_cast<size_t>(spec_.window);
  for (size_t row = 0; row < drawn->returns.size(); ++row) {
    const auto num_steps = static_cast<size_t>(from.num_steps[row]);
    const auto n = static_cast<size_t>(NumReturnSteps(from.num_steps[row]));
    const size_t first = row * window;
    std::ranges::fill(mask.subspan(first, num_steps), 1.0F);
    replay::NStepReturn n_step(spec_.discount);
    for (size_t i = first; i < first + n; ++i) {
      n_step.Add(from.rewards[i], from.discounts[i]);
    }
    drawn->returns[row] = n_step.reward();
    drawn->discounts[row] = n_step.discount();
  }
}

void TransitionPipeline::ChooseObservations(Drawn* drawn, Views batch) const {
  const replay::Batch& from = drawn->batch;
  const int64_t num_observations = spec_.window_observations;
  const std::span follows = ViewOf("window_follows", batch).Span<float>();
  std::ranges::fill(follows, 0.0F);
  std::ranges::fill(drawn->ahead, 0);
  std::array<int32_t, replay::kMaxWindow> steps;
  for (int64_t row = 0; row < batch_size_; ++row) {
    const int64_t num_steps = from.num_steps[static_cast<size_t>(row)];
    const std::span all =
        std::span(steps).first(static_cast<size_t>(num_steps));
    std::iota(all.begin(), all.end(), 1);
    const auto bootstrap = all.begin() + NumReturnSteps(num_steps) - 1;
    std::rotate(all.begin(), bootstrap, bootstrap + 1);
    const int64_t count = std::min(num_steps, num_observations);
    if (count < num_steps) {
      DrawOthers(from, static_cast<size_t>(row), count, all);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t observation = row * num_observations + i;
      const int32_t step = all[static_cast<size_t>(i)];
      drawn->ahead[static_cast<size_t>(observation)] = step;
      follows[static_cast<size_t>(observation * spec_.window + step - 1)] =
          1.0F;
    }
  }
}

void TransitionPipeline::WriteStates(const Drawn& drawn, Views batch) const {
  const replay::Batch& from = drawn.batch;
  const bool has_pixels = spec_.task.has_pixels;
  const auto& now = ViewOf(has_pixels ? "state" : "observation", batch);
  if (spec_.window == 0) {
    Copy(from.observations.bytes(), now);
    Copy(from.next_observations.bytes(),
         ViewOf(has_pixels ? "next_state" : "next_observation", batch));
    return;
  }
  const auto& window =
      ViewOf(has_pixels ? "window_state" : "window_observation", batch);
  const std::span all = from.observations.bytes();
  for (int64_t row = 0; row < batch_size_; ++row) {
    const std::span states = PartOf(all, row, batch_size_);
    const auto state = [&](int64_t i) {
      return PartOf(states, i, form().num_observations());
    };
    std::ranges::copy(state(0), RowOf(now, row).begin());
    const std::span<std::byte> out = RowOf(window, row);
    const std::span ahead = drawn.AheadOf(row, batch_size_);
    for (size_t i = 0; i < ahead.size(); ++i) {
      const std::span to = out.subspan(i * state(0).size(), state(0).size());
      if (ahead[i] == 0) {
        std::ranges::fill(to, std::byte{0});
      } else {
        std::ranges::copy(state(ahead[i]), to.begin());
      }
    }
  }
}

void TransitionPipeline::WriteFrames(const Drawn& drawn, Views batch) {
  const replay::Batch& from = drawn.batch;
  if (resident_ != nullptr) resident_->BeginBatch();
  const auto write = resident_ == nullptr
                         ? &TransitionPipeline::WriteRowOfFrames
                         : &TransitionPipeline::WriteRowOfSlots;
  ParallelForEach(static_cast<int>(threads_.size()), from.size,
                  [&](int thread, int64_t row) {
                    const auto t = static_cast<size_t>(thread);
                    (this->*write)(from.FramesOf(row, threads_[t]), row,
                                   drawn.AheadOf(row, batch_size_), batch);
                  });
}

void TransitionPipeline::WriteImages(std::span<const std::byte* const> stack,
                                     std::span<std::byte> out) const {
  const auto depth = static_cast<size_t>(spec_.task.frame_stack);
  std::array<std::span<const uint8_t>, replay::kMaxStack> frames;
  size_t begin = 0;
  for (const auto& [size, pixel_bytes] : frames_) {
    for (size_t k = 0; k < depth; ++k) {
      frames[k] = {reinterpret_cast<const uint8_t*>(stack[k]) + begin, size};
    }
    const std::span<std::byte> image = out.subspan(begin * depth, size * depth);
    env::InterleaveFrames(
        std::span(frames).first(depth),
        {reinterpret_cast<uint8_t*>(image.data()), image.size()}, pixel_bytes,
        stores_);
    begin += size;
  }
}

void TransitionPipeline::WriteRowOfFrames(const replay::ItemFrames& frames,
                                          int64_t row,
                                          std::span<const int32_t> ahead,
                                          Views batch) const {
  const std::span<std::byte> image = RowOf(ViewOf("observation", batch), row);
  if (spec_.window == 0) {
    WriteImages(frames.frames, image);
    WriteImages(frames.next_frames,
                RowOf(ViewOf("next_observation", batch), row));
    return;
  }
  // frames [i, i + stack) are the stack of o_{t+i}
  const auto stack_of = [&](int64_t i) {
    return frames.frames.subspan(static_cast<size_t>(i),
                                 static_cast<size_t>(spec_.task.frame_stack));
  };
  WriteImages(stack_of(0), image);
  const std::span<std::byte> window =
      RowOf(ViewOf("window_observation", batch), row);
  for (size_t i = 0; i < ahead.size(); ++i) {
    const std::span out = window.subspan(i * image.size(), image.size());
    if (ahead[i] == 0) {
      std::ranges::fill(out, std::byte{0});
    } else {
      WriteImages(stack_of(ahead[i]), out);
    }
  }
}

void TransitionPipeline::WriteRowOfSlots(const replay::ItemFrames& frames,
                                         int64_t row,
                                         std::span<const int32_t> ahead,
                                         Views batch) const {
  const auto depth = static_cast<size_t>(spec_.task.frame_stack);
  const auto row_of = [&](std::string_view name) {
    const std::span all = ViewOf(name, batch).Span<int32_t>();
    return PartOf(all, row, batch_size_);
  };
  if (spec_.window == 0) {
    const auto write = [&](std::span<const std::byte* const> places,
                           std::span<const uint64_t> numbers,
                           std::span<int32_t> slots) {
      for (size_t i = 0; i < slots.size(); ++i) {
        slots[i] = resident_->SlotOf(numbers[i], places[i]);
      }
    };
    write(frames.frames, frames.numbers, row_of("observation"));
    write(frames.next_frames, frames.next_numbers, row_of("next_observation"));
    return;
  }
  // frames [i, i + stack) are the stack of o_{t+i}; each is asked for once
  constexpr int32_t kNone = -1;
  std::array<int32_t, replay::kMaxWindow + replay::kMaxStack> slots;
  std::ranges::fill(slots, kNone);
  const auto write_stack = [&](int32_t i, std::span<int32_t> out) {
    for (size_t k = 0; k < depth; ++k) {
      const size_t frame = static_cast<size_t>(i) + k;
      if (slots[frame] == kNone) {
        slots[frame] =
            resident_->SlotOf(frames.numbers[frame], frames.frames[frame]);
      }
      out[k] = slots[frame];
    }
  };
  write_stack(0, row_of("observation"));
  const std::span window = row_of("window_observation");
  std::ranges::fill(window, kNone);
  for (size_t i = 0; i < ahead.size(); ++i) {
    if (ahead[i] > 0) {
      write_stack(ahead[i], window.subspan(i * depth, depth));
    }
  }
}

}  // namespace replicant::learner
