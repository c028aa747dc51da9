#include "replay/client/kept_frames.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

namespace replicant::replay {
namespace {

// Bytes of blocks in one reply: below what delays a batch behind it.
constexpr uint32_t kReplyBytes = 1 << 20;
// Two huge pages; a smaller store has smaller slabs.
constexpr size_t kSlabBytes = size_t{4} << 20;
constexpr size_t kSlabsPerStore = 16;

// The number of the first of `count` frames, which no other call gives: stores
// of several services share the numbers.
uint64_t NewNumbers(int64_t count) {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(static_cast<uint64_t>(count),
                        std::memory_order_relaxed);
}

int64_t SizeOf(const KeptBlock& block) {
  return static_cast<int64_t>(block.bytes.size());
}

}  // namespace

FramesRequest KeptFrames::Request() const {
  // compressed blocks have no known size: all of them are asked for
  const int64_t room = options_.decompresses
                           ? options_.max_bytes / shape_.frame_bytes
                           : std::numeric_limits<int64_t>::max();
  return {.token = token_,
          .after_serial = last_,
          .room_frames = static_cast<uint64_t>(room),
          .max_bytes = kReplyBytes};
}

int64_t KeptFrames::Take(const FramesReply& reply) {
  if (reply.token != token_) {
    blocks_.clear();
    slab_.reset();
    num_before_ = 0;
    size_bytes_ = 0;
    token_ = reply.token;
    first_ = reply.after_serial + 1;
    last_ = reply.after_serial;
  }
  if (reply.after_serial != last_) return 0;
  for (size_t i = 0; i < reply.serials.size(); ++i) {
    const FrameBlockView block(reply.blocks[i]);
    Block& added = blocks_.emplace_back(Block{
        reply.serials[i], Keep(block, reply.blocks[i]), block.num_frames()});
    size_bytes_ += SizeOf(added.kept);
    num_fetched_ += added.num_frames;
  }
  last_ = reply.last_serial;
  while (size_bytes_ > options_.max_bytes && num_before_ < blocks_.size()) {
    const Block& oldest = blocks_[num_before_++];
    size_bytes_ -= SizeOf(oldest.kept);
    num_evicted_ += oldest.num_frames;
    first_ = oldest.serial + 1;
  }
  return static_cast<int64_t>(reply.serials.size());
}

std::pair<std::shared_ptr<KeptFrames::Slab>, std::span<std::byte>>
KeptFrames::Reserve(size_t size, size_t first_frame) {
  constexpr size_t kAlignment = HostBuffer::kAlignment;
  // where the block begins, so that its first frame is aligned
  const auto begin_after = [&](size_t used) {
    return (used + first_frame + kAlignment - 1) / kAlignment * kAlignment -
           first_frame;
  };
  if (slab_ == nullptr ||
      begin_after(slab_->used) + size > slab_->memory.size_bytes()) {
    const size_t share =
        static_cast<size_t>(options_.max_bytes) / kSlabsPerStore;
    slab_ = std::make_shared<Slab>(Slab{
        HostBuffer(std::max(std::min(share, kSlabBytes), begin_after(0) + size),
                   HostBuffer::Fill::kUninitialised)});
  }
  const size_t begin = begin_after(slab_->used);
  slab_->used = begin + size;
  return {slab_, slab_->memory.bytes().subspan(begin, size)};
}

KeptBlock KeptFrames::Keep(const FrameBlockView& block,
                           std::span<const std::byte> bytes) {
  const int64_t count = block.num_frames();
  const size_t header = RawHeaderBytes(count);
  if (!options_.decompresses) {
    auto [slab, room] = Reserve(bytes.size(), header);
    std::ranges::copy(bytes, room.begin());
    return {std::move(slab), room, NewNumbers(count)};
  }
  auto [slab, room] =
      Reserve(RawBlockBytes(block.frame_bytes(), count), header);
  WriteRawHeader(block.frame_bytes(), count, room);
  decoder_.Decode(block, 0, count, room.subspan(header));
  return {std::move(slab), room, NewNumbers(count)};
}

KeptRange KeptFrames::range() const {
  return {.token = token_, .first_serial = first_, .last_serial = last_};
}

KeptBlock KeptFrames::Find(uint64_t serial) const {
  const auto found =
      std::ranges::lower_bound(blocks_, serial, {}, &Block::serial);
  if (found == blocks_.end() || found->serial != serial) return {};
  return found->kept;
}

void KeptFrames::Forget(uint64_t first_needed) {
  while (num_before_ > 0 && blocks_.front().serial < first_needed) {
    blocks_.pop_front();
    --num_before_;
  }
}

}  // namespace replicant::replay
