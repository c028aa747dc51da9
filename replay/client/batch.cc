#include "replay/client/batch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "replay/client/importance_weights.h"

namespace replicant::replay {
namespace {

// Row `row` of rows of `bytes` bytes each.
template <typename Rows>
auto RowOf(Rows rows, int64_t row, int64_t bytes) {
  return rows.subspan(static_cast<size_t>(row * bytes),
                      static_cast<size_t>(bytes));
}

void CopyRow(HostBuffer& to, int64_t row, std::span<const std::byte> from) {
  if (from.empty()) return;
  std::memcpy(RowOf(to.bytes(), row, static_cast<int64_t>(from.size())).data(),
              from.data(), from.size());
}

}  // namespace

bool Batch::HasBuffersFor(int64_t batch_size, const BatchForm& item_form,
                          const StepShape& shape) const {
  const auto fits = [batch_size](const HostBuffer& buffer, int64_t row_bytes) {
    return static_cast<int64_t>(buffer.size_bytes()) == batch_size * row_bytes;
  };
  const RowBytes row = item_form.BytesOf(shape);
  return size == batch_size && form == item_form &&
         fits(observations, row.observations) &&
         fits(next_observations, row.next_observations) &&
         fits(actions, row.actions) && fits(frames, row.frames) &&
         fits(next_frames, row.next_frames);
}

void Batch::Resize(int64_t batch_size, const BatchForm& item_form) {
  size = batch_size;
  form = item_form;
  const auto count = static_cast<size_t>(batch_size);
  const size_t num_rewards = count * static_cast<size_t>(form.num_actions());
  rewards.resize(num_rewards);
  discounts.resize(num_rewards);
  num_steps.resize(count);
  priorities.resize(count);
  weights.resize(count);
  probabilities.resize(count);
  times_sampled.resize(count);
  keys.resize(count);
  shards.resize(count);
  compressed.clear();
}

void Batch::Take(const BatchMessage& message, int64_t first_row, int32_t shard,
                 double share, FrameDecoder& decoder) {
  TakeItems(message, first_row, shard, share);
  const RowBytes bytes = form.BytesOf(message.shape());
  if (bytes.frames == 0) return;
  for (int64_t i = 0; i < message.size(); ++i) {
    const int64_t row = first_row + i;
    message.DecodeFrames(i, decoder, RowOf(frames.bytes(), row, bytes.frames),
                         RowOf(next_frames.bytes(), row, bytes.next_frames));
  }
}

void Batch::TakeCompressed(BatchMessage message, int64_t first_row,
                           int32_t shard, double share) {
  TakeItems(message, first_row, shard, share);
  compressed.push_back({first_row, std::move(message)});
}

Batch::Frames Batch::FramesOf(int64_t row, FrameDecoder& decoder,
                              std::span<std::byte> room) const {
  REPLICANT_CHECK(row >= 0 && row < size, "row {} of {}", row, size);
  const auto row_bytes = [this](const HostBuffer& buffer) {
    return static_cast<int64_t>(buffer.size_bytes()) / size;
  };
  for (const auto& [first_row, message] : compressed) {
    const int64_t index = row - first_row;
    if (index < 0 || index >= message.size()) continue;
    const auto num_first = static_cast<size_t>(row_bytes(frames));
    const auto first = room.first(num_first);
    const auto second = room.subspan(num_first);
    message.DecodeFrames(index, decoder, first, second);
    return {first, second};
  }
  return {RowOf(frames.bytes(), row, row_bytes(frames)),
          RowOf(next_frames.bytes(), row, row_bytes(next_frames))};
}

void Batch::TakeItems(const BatchMessage& message, int64_t first_row,
                      int32_t shard, double share) {
  for (int64_t i = 0; i < message.size(); ++i) {
    const int64_t row = first_row + i;
    const auto r = static_cast<size_t>(row);
    const SampledItem& item = message.items()[static_cast<size_t>(i)];
    if (!message.AreRowsInMemory()) {
      CopyRow(observations, row, message.Observation(i));
      CopyRow(next_observations, row, message.NextObservation(i));
      CopyRow(actions, row, message.Action(i));
    }
    if (form.HasWindows()) {
      const size_t first = r * static_cast<size_t>(form.window);
      std::ranges::copy(message.StepRewards(i), rewards.data() + first);
      std::ranges::copy(message.StepDiscounts(i), discounts.data() + first);
    } else {
      rewards[r] = item.reward;
      discounts[r] = item.discount;
    }
    num_steps[r] = static_cast<int32_t>(item.n);
    priorities[r] = item.priority;
    probabilities[r] = item.probability * share;
    times_sampled[r] = item.times_sampled;
    keys[r] = item.key;
    shards[r] = shard;
  }
}

void Batch::SetWeights(double importance_exponent) {
  if (importance_exponent == 0.0) {
    std::fill(weights.begin(), weights.end(), 1.0f);
  } else {
    ImportanceWeights(probabilities, importance_exponent, weights);
  }
}

}  // namespace replicant::replay
