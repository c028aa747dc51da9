#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/tensor/host_buffer.h"
#include "replay/table/shard.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::replay::testing {

// Transitions of 3 steps with stacks of 3 frames.
inline ShardConfig StackedTable(const EpisodeMaker& maker) {
  return OpenTable(maker, {.n_step = 3, .stack = 3});
}

inline void Insert(Shard& shard, const EpisodeMaker& maker, uint64_t writer,
                   uint64_t episode, int64_t num_steps) {
  uint64_t sequence = shard.LastSequence(writer);
  for (auto& chunk : maker.Chunks(episode, num_steps)) {
    ASSERT_EQ(shard.TryInsert(writer, ++sequence, std::move(chunk)),
              InsertResult::kInserted);
  }
}

template <typename T>
T Load(const HostBuffer& buffer, int64_t index) {
  T value;
  std::memcpy(&value, buffer.data() + static_cast<size_t>(index) * sizeof(T),
              sizeof(T));
  return value;
}

inline std::vector<std::byte> RowOf(const HostBuffer& buffer, int64_t row,
                                    int64_t size) {
  const auto bytes = buffer.bytes().subspan(static_cast<size_t>(row * size),
                                            static_cast<size_t>(size));
  return {bytes.begin(), bytes.end()};
}

inline bool AreEqual(const HostBuffer& a, const HostBuffer& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

}  // namespace replicant::replay::testing
