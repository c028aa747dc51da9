#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "replay/step_group.h"

namespace replicant::replay {

// Names one item of a table while it lives: slot and generation of the slot.
// The generation changes when the item goes, so that a late message about it
// does not reach the next item of the slot.
struct ItemKey {
  uint32_t slot = 0;
  uint32_t generation = 0;

  bool operator==(const ItemKey&) const = default;
};

// A step group as the replay holds it. The block never changes; what links it
// to items and to the rest of its episode is guarded by the shard's lock.
//
// Ownership: the store and everything that reads the block outside the lock
// share it (shared_ptr); items count as uses.
struct Group : std::enable_shared_from_this<Group> {
  // Throws IoError like StepGroupView.
  Group(std::vector<std::byte> bytes, const StepShape& shape)
      : block(std::move(bytes)), view(block, shape) {}

  const std::vector<std::byte> block;
  const StepGroupView view;

  struct ItemOfTable {
    uint32_t table;
    ItemKey key;
  };

  // --- guarded by the shard's lock ---

  // Counts the groups of a store, from 1, in the order of Add(); the same in
  // every checkpoint.
  uint64_t serial = 0;
  uint64_t writer = 0;
  uint64_t sequence = 0;
  // The next group of the same episode. May be followed from an item whose
  // steps go on there: its use keeps that group alive.
  Group* next = nullptr;
  uint64_t next_serial = 0;  // its serial, also when it has gone; 0 for none
  // Items and open episodes that need this group.
  int64_t uses = 0;
  // Items whose first group this is; some may be gone since.
  std::vector<ItemOfTable> items;
  std::list<std::shared_ptr<Group>>::iterator place;
};

// Holds the step groups of a shard, the oldest first, and counts their bytes.
//
// A group is in the store while something uses it. When the last use is
// released it leaves, and its memory goes with the last reader that pinned it.
//
// Thread-safety: none of its own; the shard's lock guards it.
class FrameStore {
 public:
  FrameStore() = default;
  // Groups that readers still pin may outlive the store.
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  // Takes in a group with one use, which the caller releases. Its serial is
  // larger than that of all groups before it (checked).
  Group& Add(std::shared_ptr<Group> group);

  void Use(Group& group) { ++group.uses; }
  // May end the group, unless it is pinned.
  void Release(Group& group);
  // The same for `count` groups in a row of one episode.
  void UseRange(Group& first, int64_t count);
  void ReleaseRange(Group& first, int64_t count);

  // Bytes of the groups in the store; pinned ones that left are not counted.
  int64_t size_bytes() const { return size_bytes_; }
  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
  // The serial of the group added last, or 0.
  uint64_t last_serial() const { return last_serial_; }
  void set_last_serial(uint64_t serial) { last_serial_ = serial; }

  // The oldest first.
  const std::list<std::shared_ptr<Group>>& groups() const { return groups_; }

 private:
  std::list<std::shared_ptr<Group>> groups_;
  int64_t size_bytes_ = 0;
  uint64_t last_serial_ = 0;
};

// What a group costs besides its block, in bytes, so that many small groups
// count for what they take.
inline constexpr int64_t kGroupOverheadBytes =
    static_cast<int64_t>(sizeof(Group)) + 64;

}  // namespace replicant::replay
