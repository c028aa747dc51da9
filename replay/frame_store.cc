#include "replay/frame_store.h"

#include <iterator>
#include <utility>

#include "core/base/check.h"

namespace replicant::replay {
namespace {

int64_t SizeOf(const Group& group) {
  return static_cast<int64_t>(group.block.size()) + kGroupOverheadBytes;
}

}  // namespace

Group& FrameStore::Add(std::shared_ptr<Group> group) {
  REPLICANT_CHECK_GT(group->serial, last_serial_);
  last_serial_ = group->serial;
  size_bytes_ += SizeOf(*group);
  group->uses = 1;
  groups_.push_back(std::move(group));
  Group& added = *groups_.back();
  added.place = std::prev(groups_.end());
  return added;
}

void FrameStore::Release(Group& group) {
  REPLICANT_CHECK_GT(group.uses, 0);
  if (--group.uses > 0) return;
  size_bytes_ -= SizeOf(group);
  groups_.erase(group.place);
}

void FrameStore::UseRange(Group& first, int64_t count) {
  Group* group = &first;
  for (int64_t i = 0; i < count; ++i, group = group->next) Use(*group);
}

void FrameStore::ReleaseRange(Group& first, int64_t count) {
  Group* group = &first;
  for (int64_t i = 0; i < count; ++i) {
    Group* const next = group->next;
    Release(*group);
    group = next;
  }
}

}  // namespace replicant::replay
