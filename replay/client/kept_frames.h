#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "base/tensor/host_buffer.h"
#include "replay/format/batch_message.h"
#include "replay/format/frame_codec.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

// The frame blocks of one service that a reader keeps, so that no frame travels
// twice: the service sends each block once, in the order of insertion, and a
// batch names the blocks by their chunks' serials. Serials belong to the
// service's token, which a restarted service does not have.
//
//   kept.range()     goes with each request of a batch; what the service draws
//                    within it comes without frames
//   kept.Request()   asks for the blocks after the newest, Take() adds them
//   kept.Find()      resolves the serials of a reply, in the order of replies
//
// At most max_bytes are kept: the oldest leave the range first, and the memory
// later, by Forget(), once no reply can name them. Blocks lie one after the
// other in slabs of up to 4 MiB, on huge pages; a slab is freed with its last
// block. So the memory is max_bytes and up to two slabs.
//
// Thread-safety: one thread at a time; a block lives as long as its users.
class KeptFrames {
 public:
  struct Options {
    int64_t max_bytes = 0;  // 0 keeps nothing
    // Whether blocks are decompressed when they arrive: five to ten times the
    // memory, and no decoding for each draw.
    bool decompresses = true;
  };

  explicit KeptFrames(const Options& options, const StepShape& shape)
      : options_(options), shape_(shape) {}

  // Whether anything is kept.
  bool is_on() const {
    return options_.max_bytes > 0 && shape_.frame_bytes > 0;
  }
  // The request of the blocks that are missing.
  FramesRequest Request() const;
  // Adds what came. Returns the number of blocks; 0 if the newest are here.
  // A reply to a request that another one has overtaken changes nothing.
  // Throws rpc::MalformedMessage or IoError for a damaged reply.
  int64_t Take(const FramesReply& reply);
  // The serials whose blocks a reply may leave out.
  KeptRange range() const;
  // The block of a chunk; without bytes if it is not here.
  KeptBlock Find(uint64_t serial) const;
  // Frees the blocks that have left the range, except those with serials of
  // `first_needed` on, which a reply under way may name.
  void Forget(uint64_t first_needed);

  // Bytes of the blocks in the range.
  int64_t size_bytes() const { return size_bytes_; }
  // Frames that came, and those of them that left the range to make room.
  int64_t num_fetched() const { return num_fetched_; }
  int64_t num_evicted() const { return num_evicted_; }

 private:
  struct Block {
    uint64_t serial;
    KeptBlock kept;
    int64_t num_frames;
  };
  // Memory of successive blocks.
  struct Slab {
    HostBuffer memory;
    size_t used = 0;
  };

  // Room for a block of `size` bytes, with the byte at `first_frame` on a cache
  // line's start.
  std::pair<std::shared_ptr<Slab>, std::span<std::byte>> Reserve(
      size_t size, size_t first_frame);
  // A copy of the block that came, decompressed or not.
  KeptBlock Keep(const FrameBlockView& block, std::span<const std::byte> bytes);

  const Options options_;
  const StepShape shape_;
  FrameDecoder decoder_;
  uint64_t token_ = 0;
  uint64_t first_ = 1;  // of the range
  uint64_t last_ = 0;
  std::deque<Block> blocks_;  // ascending; some may be before the range
  size_t num_before_ = 0;     // those
  int64_t size_bytes_ = 0;
  int64_t num_fetched_ = 0;
  int64_t num_evicted_ = 0;
  std::shared_ptr<Slab> slab_;  // of the newest blocks
};

}  // namespace replicant::replay
