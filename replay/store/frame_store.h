#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "replay/format/chunk.h"
#include "replay/format/sampled_batch.h"
#include "replay/store/disk_tier.h"

namespace replicant::replay {

// A chunk in a store, linked to its items and to the next chunk of its
// episode. Each item counts as a use. Guarded by the shard's lock.
struct StoredChunk {
  explicit StoredChunk(std::shared_ptr<const Chunk> chunk,
                       std::shared_ptr<const void> use = nullptr)
      : data(std::move(chunk)),
        disk_use(std::move(use)),
        serial(data->serial) {}

  const ChunkView& view() const { return data->view; }

  struct ItemOfTable {
    uint32_t table;
    ItemKey key;
  };

  // Replaced when its bytes move to the disk.
  std::shared_ptr<const Chunk> data;
  std::shared_ptr<const void> disk_use;  // from DiskTier::Moved, while stored
  const uint64_t serial;
  // The next chunk of the same episode. An item that continues there holds a
  // use of that chunk, so it may follow this link.
  StoredChunk* next = nullptr;
  // The serial of `next`, even after that chunk was removed; 0 for none.
  uint64_t next_serial = 0;
  // Items and open episodes that need this chunk.
  int64_t uses = 0;
  // Items that begin in this chunk; some may have been removed since.
  std::vector<ItemOfTable> items;
  std::list<std::shared_ptr<StoredChunk>>::iterator place;
};

// Holds the chunks of a shard, oldest first, and counts their bytes.
//
// A chunk stays in the store while it has a use. After its last release, its
// memory is freed as soon as no reader holds it.
//
// Thread-safety: not thread-safe; the shard's lock guards it.
class FrameStore {
 public:
  using Chunks = std::list<std::shared_ptr<StoredChunk>>;

  // Without a disk tier.
  FrameStore() : first_in_memory_(chunks_.end()) {}
  // With a disk tier, unless disk.max_bytes is 0. Throws like DiskTier.
  FrameStore(const DiskTierConfig& disk, const StepShape& shape);
  // Chunks that readers still hold may outlive the store.
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  // Adds a chunk with one use, which the caller must release. Its serial must
  // exceed the serials of all earlier chunks (checked).
  StoredChunk& Add(std::shared_ptr<StoredChunk> chunk);

  void Use(StoredChunk& chunk) { ++chunk.uses; }
  // Removes the chunk if this was its last use.
  void Release(StoredChunk& chunk);
  // Releases `count` successive chunks of one episode.
  void UseRange(StoredChunk& first, int64_t count);
  void ReleaseRange(StoredChunk& first, int64_t count);

  // --- the disk tier ---

  // nullptr without a disk tier.
  DiskTier* disk() { return disk_.get(); }
  const DiskTier* disk() const { return disk_.get(); }
  // Moves a chunk's bytes to the disk. Throws IoError like DiskTier::Write().
  // Preconditions: there is one; the chunk is in memory (checked).
  void MoveToDisk(StoredChunk& chunk);
  // The oldest chunk whose bytes are in memory, or the oldest after `chunk`;
  // nullptr if there is none.
  StoredChunk* OldestInMemory() const;
  StoredChunk* NextInMemory(const StoredChunk& chunk) const;

  // Memory of the chunks in the store in bytes, not counting removed chunks
  // that readers still hold.
  int64_t memory_bytes() const { return memory_bytes_; }
  int64_t num_chunks() const { return static_cast<int64_t>(chunks_.size()); }
  int64_t num_on_disk() const { return num_on_disk_; }
  // The serial of the chunk added last; 0 if none.
  uint64_t last_serial() const { return last_serial_; }
  void set_last_serial(uint64_t serial) { last_serial_ = serial; }

  // The oldest first.
  const Chunks& chunks() const { return chunks_; }
  // The oldest chunk with a serial above `serial`, and the oldest of those that
  // hold the newest `num_frames` frames. O(chunks from there to the newest).
  Chunks::const_iterator FirstAfter(uint64_t serial) const;
  Chunks::const_iterator FirstOfNewest(uint64_t num_frames) const;

 private:
  Chunks::const_iterator InMemoryFrom(Chunks::const_iterator it) const;

  const StepShape shape_;
  std::unique_ptr<DiskTier> disk_;
  Chunks chunks_;
  Chunks::const_iterator first_in_memory_;
  int64_t memory_bytes_ = 0;
  int64_t num_on_disk_ = 0;
  uint64_t last_serial_ = 0;
};

// Bytes of memory that a chunk takes in addition to its block.
inline constexpr int64_t kChunkOverheadBytes =
    static_cast<int64_t>(sizeof(StoredChunk) + sizeof(Chunk)) + 128;

}  // namespace replicant::replay
