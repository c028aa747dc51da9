#include "replay/client/kept_frames.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace replicant::replay {
namespace {

// Bytes of blocks in one reply: below what delays a batch behind it.
constexpr uint32_t kReplyBytes = 1 << 20;

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
    num_before_ = 0;
    size_bytes_ = 0;
    token_ = reply.token;
    first_ = reply.after_serial + 1;
    last_ = reply.after_serial;
  }
  if (reply.after_serial != last_) return 0;
  for (size_t i = 0; i < reply.serials.size(); ++i) {
    auto block = std::make_shared<const std::vector<std::byte>>(
        options_.decompresses ? Decompressed(reply.blocks[i])
                              : std::vector<std::byte>(reply.blocks[i].begin(),
                                                       reply.blocks[i].end()));
    size_bytes_ += static_cast<int64_t>(block->size());
    blocks_.push_back({reply.serials[i], std::move(block)});
  }
  last_ = reply.last_serial;
  while (size_bytes_ > options_.max_bytes && num_before_ < blocks_.size()) {
    const Block& oldest = blocks_[num_before_++];
    size_bytes_ -= static_cast<int64_t>(oldest.bytes->size());
    first_ = oldest.serial + 1;
  }
  return static_cast<int64_t>(reply.serials.size());
}

std::vector<std::byte> KeptFrames::Decompressed(
    std::span<const std::byte> block) {
  const FrameBlockView view(block);
  const auto frame_bytes = static_cast<size_t>(view.frame_bytes());
  std::vector<std::byte> frames(static_cast<size_t>(view.num_frames()) *
                                frame_bytes);
  decoder_.Decode(view, 0, view.num_frames(), frames);
  FrameBlockEncoder encoder(FrameCodec::kNone, view.frame_bytes(),
                            view.num_frames());
  for (size_t at = 0; at < frames.size(); at += frame_bytes) {
    encoder.Add(std::span(frames).subspan(at, frame_bytes));
  }
  return encoder.Finish();
}

KeptRange KeptFrames::range() const {
  return {.token = token_, .first_serial = first_, .last_serial = last_};
}

FrameBlockPtr KeptFrames::Find(uint64_t serial) const {
  const auto found =
      std::ranges::lower_bound(blocks_, serial, {}, &Block::serial);
  if (found == blocks_.end() || found->serial != serial) return nullptr;
  return found->bytes;
}

void KeptFrames::Forget(uint64_t first_needed) {
  while (num_before_ > 0 && blocks_.front().serial < first_needed) {
    blocks_.pop_front();
    --num_before_;
  }
}

}  // namespace replicant::replay
