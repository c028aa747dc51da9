#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "replay/format/batch_form.h"
#include "replay/format/chunk.h"

namespace replicant::replay {

// Names a live item of a table: its slot and the slot's generation. The
// generation changes when the item is removed, so a late message cannot affect
// the slot's next item.
struct ItemKey {
  uint32_t slot = 0;
  uint32_t generation = 0;

  bool operator==(const ItemKey&) const = default;
};

// One drawn item: an n-step transition or a window
// (replay/format/batch_form.h).
struct SampledItem {
  ItemKey key;
  // Probability of this draw; 1 for deterministic samplers.
  double probability = 0.0;
  float priority = 0.0f;
  float reward = 0.0f;        // R of replay/table/n_step.h
  float discount = 0.0f;      // D
  int64_t times_sampled = 0;  // this draw included
  int64_t age = 0;            // items that the table has inserted since
  int64_t step = 0;           // t
  int64_t n = 0;              // k
  // Its chunks in SampledBatch::chunks, from the one that holds
  // o_{max(0, t - stack + 1)} to the one that holds o_{t+k}.
  int64_t first_chunk = 0;
  int64_t num_chunks = 0;
};

// Drawn items and their chunks. The batch keeps its chunks even if the table
// removes the items.
struct SampledBatch {
  std::vector<SampledItem> items;
  // A chunk shared by several items appears once for each of them.
  std::vector<std::shared_ptr<const Chunk>> chunks;
  // State of the table at the last draw, for readers of several shards.
  int64_t table_size = 0;
  double table_mass = 0.0;  // Selector::mass()
  // Shard::num_steps() at the last draw.
  int64_t total_steps = 0;

  // The chunk of `item` that holds observation `step` of its episode.
  // Precondition: it lies in the item's chunks (checked; aborts).
  const Chunk& ChunkOf(const SampledItem& item, int64_t step) const;
};

// A new priority for an item.
struct PriorityUpdate {
  ItemKey key;
  float priority = 0.0f;
};

}  // namespace replicant::replay
