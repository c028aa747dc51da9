#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "replay/store/frame_store.h"
#include "replay/table/n_step.h"
#include "replay/table/rate_limiter.h"
#include "replay/table/selector.h"

namespace replicant::replay {

// One table of a service.
struct TableConfig {
  std::string name = "default";
  // Maximum number of items; an insert into a full table removes one.
  int64_t max_size = 1'000'000;
  SelectorKind sampler = SelectorKind::kPrioritized;
  double priority_exponent = 0.6;
  PriorityFade priority_fade = {};  // kPrioritized only
  // kFifo, kLifo or kLowestPriority.
  SelectorKind remover = SelectorKind::kFifo;
  // Number of samples after which an item is removed; 0 for no limit.
  int64_t max_times_sampled = 0;
  NStepConfig n_step;
  RateLimiterConfig rate_limiter;
};

// One slot of a table.
struct TableItem {
  StoredChunk* first = nullptr;  // nullptr: the slot is free
  uint64_t order = 0;            // of insertion: 1 for the table's first item
  uint32_t generation = 0;
  int32_t step = 0;
  int32_t times_sampled = 0;
  float reward = 0.0f;
  float discount = 0.0f;
  float priority = 0.0f;
  uint16_t n = 0;
  uint16_t num_chunks = 0;
};

// The part of a table stored in a checkpoint.
struct TableContents {
  std::vector<TableItem> items;      // by slot
  std::vector<uint32_t> free_slots;  // in the order that they are taken from
  RateLimiter::State limiter;
  float max_priority = 1.0f;
  // The largest generation of any item so far.
  uint32_t max_generation = 0;
};

// A table of items, sampled by priority, by age or uniformly. The items' steps
// are in a FrameStore that all tables of the shard share.
//
// Thread-safety: not thread-safe; the shard's lock guards it.
class Table {
 public:
  // Throws InvalidArgument, with the table's name, for unusable settings.
  // `index` is this table's number in the shard; `store` outlives the table.
  Table(const TableConfig& config, const RateLimiterLimits& limits,
        uint32_t index, FrameStore* store);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Returns how many of `wanted` inserts are admitted now. While the mass is
  // zero, all are admitted: a reader of several services may then draw from the
  // others alone, and the writers would wait forever.
  int64_t AdmitInserts(int64_t wanted) const;
  // Inserts an item and takes over its uses of chunks. Its priority is the
  // writer's, or else the largest that the table has seen. Removes another item
  // if the table is full.
  // Precondition: AdmitInserts(1) == 1 (checked; aborts).
  void Insert(const NStepItem& item);

  // Draws as many items as are admitted now, at most `wanted`, adds them to
  // `batch` and returns their number. The draws of one call are stratified.
  // With max_times_sampled a draw may remove its item, so items are drawn one
  // by one, each from the remaining ones.
  int64_t Sample(int64_t wanted, RandomStream& random, SampledBatch* batch);

  // Sets priorities and returns how many of the keys name a live item.
  // Throws InvalidArgument, changing nothing, if a priority is negative or not
  // finite.
  int64_t UpdatePriorities(std::span<const PriorityUpdate> updates);

  // Removes the item if it is live.
  void Remove(ItemKey key);

  int64_t size() const { return size_; }
  double mass() const { return sampler_->mass(); }
  const TableConfig& config() const { return config_; }
  const RateLimiter& rate_limiter() const { return limiter_; }
  float max_priority() const { return max_priority_; }

  // --- for a checkpoint ---

  // Fills `contents`, reusing the memory of its vectors.
  void ReadContents(TableContents* contents) const;
  size_t num_slots() const { return items_.size(); }
  // Fills an empty table; `contents.items` hold their chunks and no uses. Items
  // keep their keys and ages, and later items get the slots that they would
  // have had. If the table has become too small for that, the oldest items are
  // left out. Precondition: the table is empty (checked).
  void Restore(const TableContents& contents);
  // After a restore, continues with the samples of a later state.
  void RestoreSamples(const RateLimiter::State& state) {
    limiter_.RestoreSamples(state);
  }

 private:
  uint32_t TakeSlot();
  void RemoveSlot(uint32_t slot);
  void Enter(uint32_t slot);
  void AddToBatch(const Draw& draw, SampledBatch* batch);
  bool IsLive(ItemKey key) const;
  // Fetches an item into the cache, ahead of its use. Any number is allowed.
  void Prefetch(size_t slot) const;

  const TableConfig config_;
  const uint32_t index_;
  FrameStore* const store_;
  RateLimiter limiter_;
  std::unique_ptr<Selector> sampler_;
  std::unique_ptr<Selector> remover_;

  std::vector<TableItem> items_;  // by slot; grows up to max_size
  std::vector<uint32_t> free_slots_;
  // The smallest generation of an item that this process inserts. It exceeds
  // every generation that an earlier process can have used since its last
  // checkpoint.
  static constexpr uint32_t kGenerationsPerRestore = 1 << 20;
  uint32_t first_generation_ = 0;
  uint32_t max_generation_ = 0;
  int64_t size_ = 0;
  float max_priority_ = 1.0f;
  // kept for their memory
  std::vector<Draw> draws_;
  std::vector<int64_t> updated_slots_;
  std::vector<double> new_priorities_;
};

}  // namespace replicant::replay
