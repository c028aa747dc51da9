#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "replay/format/group.h"
#include "replay/format/sampled_batch.h"
#include "replay/store/disk_tier.h"

namespace replicant::replay {

// A step group's place in a store: what links it to items and to the rest of
// its episode. Guarded by the shard's lock; items count as uses.
struct StoredGroup {
  explicit StoredGroup(std::shared_ptr<const Group> group,
                       std::shared_ptr<const void> use = nullptr)
      : data(std::move(group)),
        disk_use(std::move(use)),
        serial(data->serial) {}

  const StepGroupView& view() const { return data->view; }

  struct ItemOfTable {
    uint32_t table;
    ItemKey key;
  };

  // Replaced when its bytes move to the disk.
  std::shared_ptr<const Group> data;
  std::shared_ptr<const void> disk_use;  // of DiskTier::Moved, while stored
  const uint64_t serial;
  // The next group of the same episode. May be followed from an item whose
  // steps go on there: its use keeps that group alive.
  StoredGroup* next = nullptr;
  uint64_t next_serial = 0;  // its serial, also when it has gone; 0 for none
  // Items and open episodes that need this group.
  int64_t uses = 0;
  // Items whose first group this is; some may be gone since.
  std::vector<ItemOfTable> items;
  std::list<std::shared_ptr<StoredGroup>>::iterator place;
};

// Holds the step groups of a shard, the oldest first, and counts their bytes.
//
// A group is in the store while something uses it. When the last use is
// released it leaves, and its memory goes with the last reader that pinned it.
//
// Thread-safety: none of its own; the shard's lock guards it.
class FrameStore {
 public:
  using Groups = std::list<std::shared_ptr<StoredGroup>>;

  // Without a disk tier.
  FrameStore() : first_in_memory_(groups_.end()) {}
  // Throws like DiskTier; max_bytes 0 stands for none.
  FrameStore(const DiskTierConfig& disk, const StepShape& shape);
  // Groups that readers still pin may outlive the store.
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  // Takes in a group with one use, which the caller releases. Its serial is
  // larger than that of all groups before it (checked).
  StoredGroup& Add(std::shared_ptr<StoredGroup> group);

  void Use(StoredGroup& group) { ++group.uses; }
  // May end the group, unless it is pinned.
  void Release(StoredGroup& group);
  // The same for `count` groups in a row of one episode.
  void UseRange(StoredGroup& first, int64_t count);
  void ReleaseRange(StoredGroup& first, int64_t count);

  // --- the disk tier ---

  // nullptr: none.
  DiskTier* disk() { return disk_.get(); }
  const DiskTier* disk() const { return disk_.get(); }
  // Moves a group's bytes there. Throws IoError like DiskTier::Write().
  // Preconditions: there is one; the group is in memory (checked).
  void MoveToDisk(StoredGroup& group);
  // The oldest group whose bytes are in memory, or the oldest after `group`;
  // nullptr if there is none.
  StoredGroup* OldestInMemory() const;
  StoredGroup* NextInMemory(const StoredGroup& group) const;

  // Bytes of memory that the groups in the store take; pinned ones that left
  // are not counted.
  int64_t memory_bytes() const { return memory_bytes_; }
  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
  int64_t num_on_disk() const { return num_on_disk_; }
  // The serial of the group added last, or 0.
  uint64_t last_serial() const { return last_serial_; }
  void set_last_serial(uint64_t serial) { last_serial_ = serial; }

  // The oldest first.
  const Groups& groups() const { return groups_; }

 private:
  Groups::const_iterator InMemoryFrom(Groups::const_iterator it) const;

  const StepShape shape_;
  std::unique_ptr<DiskTier> disk_;
  Groups groups_;
  Groups::const_iterator first_in_memory_;
  int64_t memory_bytes_ = 0;
  int64_t num_on_disk_ = 0;
  uint64_t last_serial_ = 0;
};

// What a group costs besides its block, in bytes, so that many small groups
// count for what they take.
inline constexpr int64_t kGroupOverheadBytes =
    static_cast<int64_t>(sizeof(StoredGroup) + sizeof(Group)) + 128;

}  // namespace replicant::replay
