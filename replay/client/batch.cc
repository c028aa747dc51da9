#include "replay/client/batch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/check.h"
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

bool Batch::HasBuffersFor(int64_t batch_size, int64_t frame_stack,
                          const StepShape& shape) const {
  const auto fits = [batch_size](const HostBuffer& buffer, int64_t row_bytes) {
    return static_cast<int64_t>(buffer.size_bytes()) == batch_size * row_bytes;
  };
  const int64_t stack_bytes = frame_stack * shape.frame_bytes;
  return size == batch_size && stack == frame_stack &&
         fits(observations, shape.observation_bytes) &&
         fits(next_observations, shape.observation_bytes) &&
         fits(actions, shape.action_bytes) && fits(frames, stack_bytes) &&
         fits(next_frames, stack_bytes);
}

void Batch::Resize(int64_t batch_size, int64_t frame_stack) {
  size = batch_size;
  stack = frame_stack;
  const auto count = static_cast<size_t>(batch_size);
  rewards.resize(count);
  discounts.resize(count);
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
  const int64_t stack_bytes = stack * message.shape().frame_bytes;
  if (stack_bytes == 0) return;
  for (int64_t i = 0; i < message.size(); ++i) {
    const int64_t row = first_row + i;
    message.DecodeFrames(i, decoder, RowOf(frames.bytes(), row, stack_bytes),
                         RowOf(next_frames.bytes(), row, stack_bytes));
  }
}

void Batch::TakeCompressed(BatchMessage message, int64_t first_row,
                           int32_t shard, double share) {
  TakeItems(message, first_row, shard, share);
  compressed.push_back({first_row, std::move(message)});
}

Batch::Stacks Batch::StacksOf(int64_t row, FrameDecoder& decoder,
                              std::span<std::byte> room) const {
  REPLICANT_CHECK(row >= 0 && row < size, "row {} of {}", row, size);
  for (const auto& [first_row, message] : compressed) {
    const int64_t index = row - first_row;
    if (index < 0 || index >= message.size()) continue;
    const auto first = room.first(room.size() / 2);
    const auto second = room.subspan(room.size() / 2);
    message.DecodeFrames(index, decoder, first, second);
    return {first, second};
  }
  const auto stack_bytes = static_cast<int64_t>(frames.size_bytes()) / size;
  return {RowOf(frames.bytes(), row, stack_bytes),
          RowOf(next_frames.bytes(), row, stack_bytes)};
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
    rewards[r] = item.reward;
    discounts[r] = item.discount;
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
