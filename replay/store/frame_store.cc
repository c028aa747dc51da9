#include "replay/store/frame_store.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace replicant::replay {
namespace {

int64_t MemoryOf(const Group& group) {
  return kGroupOverheadBytes +
         (group.is_on_disk ? 0 : static_cast<int64_t>(group.block.size()));
}

}  // namespace

FrameStore::FrameStore(const DiskTierConfig& disk, const StepShape& shape)
    : shape_(shape),
      disk_(disk.max_bytes == 0 ? nullptr : std::make_unique<DiskTier>(disk)),
      first_in_memory_(groups_.end()) {}

StoredGroup& FrameStore::Add(std::shared_ptr<StoredGroup> group) {
  REPLICANT_CHECK_GT(group->serial, last_serial_);
  last_serial_ = group->serial;
  memory_bytes_ += MemoryOf(*group->data);
  if (group->data->is_on_disk) ++num_on_disk_;
  group->uses = 1;
  groups_.push_back(std::move(group));
  StoredGroup& added = *groups_.back();
  added.place = std::prev(groups_.end());
  if (first_in_memory_ == groups_.end()) {
    first_in_memory_ = InMemoryFrom(added.place);
  }
  return added;
}

void FrameStore::Release(StoredGroup& group) {
  REPLICANT_CHECK_GT(group.uses, 0);
  if (--group.uses > 0) return;
  memory_bytes_ -= MemoryOf(*group.data);
  if (group.data->is_on_disk) --num_on_disk_;
  group.disk_use.reset();
  if (first_in_memory_ == group.place) {
    first_in_memory_ = InMemoryFrom(std::next(group.place));
  }
  groups_.erase(group.place);
}

void FrameStore::MoveToDisk(StoredGroup& group) {
  REPLICANT_CHECK(disk_ != nullptr && !group.data->is_on_disk,
                  "group {} cannot move: there is no disk tier", group.serial);
  DiskTier::Moved moved = disk_->Write(*group.data, shape_);
  memory_bytes_ += MemoryOf(*moved.group) - MemoryOf(*group.data);
  ++num_on_disk_;
  group.data = std::move(moved.group);
  group.disk_use = std::move(moved.use);
  if (first_in_memory_ == group.place) {
    first_in_memory_ = InMemoryFrom(std::next(group.place));
  }
}

FrameStore::Groups::const_iterator FrameStore::InMemoryFrom(
    Groups::const_iterator it) const {
  while (it != groups_.end() && (*it)->data->is_on_disk) ++it;
  return it;
}

StoredGroup* FrameStore::OldestInMemory() const {
  return first_in_memory_ == groups_.end() ? nullptr : first_in_memory_->get();
}

StoredGroup* FrameStore::NextInMemory(const StoredGroup& group) const {
  const auto next =
      InMemoryFrom(std::next(Groups::const_iterator(group.place)));
  return next == groups_.end() ? nullptr : next->get();
}

void FrameStore::UseRange(StoredGroup& first, int64_t count) {
  StoredGroup* group = &first;
  for (int64_t i = 0; i < count; ++i, group = group->next) Use(*group);
}

void FrameStore::ReleaseRange(StoredGroup& first, int64_t count) {
  StoredGroup* group = &first;
  for (int64_t i = 0; i < count; ++i) {
    StoredGroup* const next = group->next;
    Release(*group);
    group = next;
  }
}

}  // namespace replicant::replay
