#include "replay/store/frame_store.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace replicant::replay {
namespace {

int64_t MemoryOf(const Chunk& chunk) {
  return kChunkOverheadBytes +
         (chunk.is_on_disk ? 0 : static_cast<int64_t>(chunk.block.size()));
}

}  // namespace

FrameStore::FrameStore(const DiskTierConfig& disk, const StepShape& shape)
    : shape_(shape),
      disk_(disk.max_bytes == 0 ? nullptr : std::make_unique<DiskTier>(disk)),
      first_in_memory_(chunks_.end()) {}

StoredChunk& FrameStore::Add(std::shared_ptr<StoredChunk> chunk) {
  REPLICANT_CHECK_GT(chunk->serial, last_serial_);
  last_serial_ = chunk->serial;
  memory_bytes_ += MemoryOf(*chunk->data);
  if (chunk->data->is_on_disk) ++num_on_disk_;
  chunk->uses = 1;
  chunks_.push_back(std::move(chunk));
  StoredChunk& added = *chunks_.back();
  added.place = std::prev(chunks_.end());
  if (first_in_memory_ == chunks_.end()) {
    first_in_memory_ = InMemoryFrom(added.place);
  }
  return added;
}

void FrameStore::Release(StoredChunk& chunk) {
  REPLICANT_CHECK_GT(chunk.uses, 0);
  if (--chunk.uses > 0) return;
  memory_bytes_ -= MemoryOf(*chunk.data);
  if (chunk.data->is_on_disk) --num_on_disk_;
  chunk.disk_use.reset();
  if (first_in_memory_ == chunk.place) {
    first_in_memory_ = InMemoryFrom(std::next(chunk.place));
  }
  chunks_.erase(chunk.place);
}

void FrameStore::MoveToDisk(StoredChunk& chunk) {
  REPLICANT_CHECK(disk_ != nullptr && !chunk.data->is_on_disk,
                  "group {} cannot move: there is no disk tier", chunk.serial);
  DiskTier::Moved moved = disk_->Write(*chunk.data, shape_);
  memory_bytes_ += MemoryOf(*moved.chunk) - MemoryOf(*chunk.data);
  ++num_on_disk_;
  chunk.data = std::move(moved.chunk);
  chunk.disk_use = std::move(moved.use);
  if (first_in_memory_ == chunk.place) {
    first_in_memory_ = InMemoryFrom(std::next(chunk.place));
  }
}

FrameStore::Chunks::const_iterator FrameStore::InMemoryFrom(
    Chunks::const_iterator it) const {
  while (it != chunks_.end() && (*it)->data->is_on_disk) ++it;
  return it;
}

StoredChunk* FrameStore::OldestInMemory() const {
  return first_in_memory_ == chunks_.end() ? nullptr : first_in_memory_->get();
}

StoredChunk* FrameStore::NextInMemory(const StoredChunk& chunk) const {
  const auto next =
      InMemoryFrom(std::next(Chunks::const_iterator(chunk.place)));
  return next == chunks_.end() ? nullptr : next->get();
}

void FrameStore::UseRange(StoredChunk& first, int64_t count) {
  StoredChunk* chunk = &first;
  for (int64_t i = 0; i < count; ++i, chunk = chunk->next) Use(*chunk);
}

void FrameStore::ReleaseRange(StoredChunk& first, int64_t count) {
  StoredChunk* chunk = &first;
  for (int64_t i = 0; i < count; ++i) {
    StoredChunk* const next = chunk->next;
    Release(*chunk);
    chunk = next;
  }
}

FrameStore::Chunks::const_iterator FrameStore::FirstAfter(
    uint64_t serial) const {
  auto first = chunks_.end();
  while (first != chunks_.begin() && (*std::prev(first))->serial > serial) {
    --first;
  }
  return first;
}

FrameStore::Chunks::const_iterator FrameStore::FirstOfNewest(
    uint64_t num_frames) const {
  auto first = chunks_.end();
  while (first != chunks_.begin()) {
    const auto older = std::prev(first);
    const auto size =
        static_cast<uint64_t>((*older)->view().num_observations());
    if (size > num_frames) break;
    num_frames -= size;
    first = older;
  }
  return first;
}

}  // namespace replicant::replay
