#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "replay/format/group.h"
#include "replay/format/sampled_batch.h"
#include "replay/store/disk_tier.h"

namespace replicant::replay {

// A step group in a store, linked to its items and to the next group of its
// episode. Each item counts as a use. Guarded by the shard's lock.
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
  std::shared_ptr<const void> disk_use;  // from DiskTier::Moved, while stored
  const uint64_t serial;
  // The next group of the same episode. An item that continues there holds a
  // use of that group, so it may follow this link.
  StoredGroup* next = nullptr;
  // The serial of `next`, even after that group was removed; 0 for none.
  uint64_t next_serial = 0;
  // Items and open episodes that need this group.
  int64_t uses = 0;
  // Items that begin in this group; some may have been removed since.
  std::vector<ItemOfTable> items;
  std::list<std::shared_ptr<StoredGroup>>::iterator place;
};

// Holds the step groups of a shard, oldest first, and counts their bytes.
//
// A group stays in the store while it has a use. After its last release, its
// memory is freed as soon as no reader holds it.
//
// Thread-safety: not thread-safe; the shard's lock guards it.
class FrameStore {
 public:
  using Groups = std::list<std::shared_ptr<StoredGroup>>;

  // Without a disk tier.
  FrameStore() : first_in_memory_(groups_.end()) {}
  // With a disk tier, unless disk.max_bytes is 0. Throws like DiskTier.
  FrameStore(const DiskTierConfig& disk, const StepShape& shape);
  // Groups that readers still hold may outlive the store.
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  // Adds a group with one use, which the caller must release. Its serial must
  // exceed the serials of all earlier groups (checked).
  StoredGroup& Add(std::shared_ptr<StoredGroup> group);

  void Use(StoredGroup& group) { ++group.uses; }
  // Removes the group if this was its last use.
  void Release(StoredGroup& group);
  // Releases `count` successive groups of one episode.
  void UseRange(StoredGroup& first, int64_t count);
  void ReleaseRange(StoredGroup& first, int64_t count);

  // --- the disk tier ---

  // nullptr without a disk tier.
  DiskTier* disk() { return disk_.get(); }
  const DiskTier* disk() const { return disk_.get(); }
  // Moves a group's bytes to the disk. Throws IoError like DiskTier::Write().
  // Preconditions: there is one; the group is in memory (checked).
  void MoveToDisk(StoredGroup& group);
  // The oldest group whose bytes are in memory, or the oldest after `group`;
  // nullptr if there is none.
  StoredGroup* OldestInMemory() const;
  StoredGroup* NextInMemory(const StoredGroup& group) const;

  // Memory of the groups in the store in bytes, not counting removed groups
  // that readers still hold.
  int64_t memory_bytes() const { return memory_bytes_; }
  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
  int64_t num_on_disk() const { return num_on_disk_; }
  // The serial of the group added last; 0 if none.
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

// Bytes of memory that a group takes in addition to its block.
inline constexpr int64_t kGroupOverheadBytes =
    static_cast<int64_t>(sizeof(StoredGroup) + sizeof(Group)) + 128;

}  // namespace replicant::replay
