#include "replay/client/batch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "replay/client/importance_weights.h"
#include "replay/format/frame_copies.h"

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

void Batch::Reserve(int64_t batch_size, const BatchForm& item_form,
                    const StepShape& shape) {
  if (!HasBuffersFor(batch_size, item_form, shape)) {
    *this = Batch();
    const auto buffer = [batch_size](int64_t row_bytes) {
      return HostBuffer(static_cast<size_t>(batch_size * row_bytes));
    };
    const RowBytes row = item_form.BytesOf(shape);
    observations = buffer(row.observations);
    next_observations = buffer(row.next_observations);
    actions = buffer(row.actions);
    frames = buffer(row.frames);
    next_frames = buffer(row.next_frames);
  }
  Resize(batch_size, item_form);
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
  ages.resize(count);
  keys.resize(count);
  shards.resize(count);
  compressed.clear();
}

void Batch::Take(const BatchMessage& message, int64_t first_row, int32_t shard,
                 double share, FrameRoom& room) {
  TakeItems(message, first_row, shard, share);
  const RowBytes bytes = form.BytesOf(message.shape());
  if (bytes.frames == 0) return;
  const auto frame_bytes = static_cast<size_t>(message.shape().frame_bytes);
  std::vector<FrameCopy> copies;
  const auto add = [&](std::span<const std::byte* const> places,
                       std::span<std::byte> row) {
    for (size_t j = 0; j < places.size(); ++j) {
      std::byte* const to = row.data() + j * frame_bytes;
      if (places[j] != to) copies.push_back({places[j], to});
    }
  };
  for (int64_t i = 0; i < message.size(); ++i) {
    const int64_t row = first_row + i;
    const std::span first = RowOf(frames.bytes(), row, bytes.frames);
    const std::span second = RowOf(next_frames.bytes(), row, bytes.next_frames);
    const ItemFrames found = message.LocateFrames(i, room, first, second);
    add(found.frames, first);
    add(found.next_frames, second);
  }
  CopyFrames(copies, frame_bytes);
}

void Batch::TakeCompressed(BatchMessage message, int64_t first_row,
                           int32_t shard, double share) {
  TakeItems(message, first_row, shard, share);
  compressed.push_back({first_row, std::move(message)});
}

ItemFrames Batch::FramesOf(int64_t row, FrameRoom& room) const {
  REPLICANT_CHECK(row >= 0 && row < size, "row {} of {}", row, size);
  const auto row_bytes = [this](const HostBuffer& buffer) {
    return buffer.size_bytes() / static_cast<size_t>(size);
  };
  const size_t num_first = row_bytes(frames);
  const size_t num_second = row_bytes(next_frames);
  for (const auto& [first_row, message] : compressed) {
    const int64_t index = row - first_row;
    if (index < 0 || index >= message.size()) continue;
    room.bytes.resize(num_first + num_second);
    const std::span bytes(room.bytes);
    return message.LocateFrames(index, room, bytes.first(num_first),
                                bytes.subspan(num_first));
  }
  const size_t frame_bytes = num_first / static_cast<size_t>(form.num_frames());
  room.places.clear();
  const auto add = [&](const HostBuffer& buffer, size_t row_size) {
    const std::byte* const begin =
        buffer.data() + static_cast<size_t>(row) * row_size;
    for (size_t at = 0; at < row_size; at += frame_bytes) {
      room.places.push_back(begin + at);
    }
  };
  add(frames, num_first);
  add(next_frames, num_second);
  room.numbers.assign(room.places.size(), 0);
  const std::span<const std::byte* const> places(room.places);
  const std::span<const uint64_t> numbers(room.numbers);
  const auto num_frames = static_cast<size_t>(form.num_frames());
  return {places.first(num_frames), places.subspan(num_frames),
          numbers.first(num_frames), numbers.subspan(num_frames)};
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
    ages[r] = item.age;
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
