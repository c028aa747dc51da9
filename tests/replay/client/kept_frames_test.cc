#include "replay/client/kept_frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace replicant::replay {
namespace {

constexpr int64_t kFrameBytes = 300;
// header and end of a block of one frame that is not compressed
constexpr int64_t kBlockBytes = 16 + 4 + kFrameBytes;

std::vector<std::byte> FrameOf(uint64_t serial) {
  return std::vector<std::byte>(kFrameBytes, static_cast<std::byte>(serial));
}

// A block of one frame.
std::vector<std::byte> BlockOf(uint64_t serial,
                               FrameCodec codec = FrameCodec::kLz4) {
  FrameBlockEncoder encoder(codec, kFrameBytes, 1);
  encoder.Add(FrameOf(serial));
  return encoder.Finish();
}

// A service with the chunks of the serials [first, last].
class Service {
 public:
  Service(uint64_t token, uint64_t first, uint64_t last)
      : token_(token), first_(first) {
    for (uint64_t serial = first; serial <= last; ++serial) {
      blocks_.push_back(BlockOf(serial));
    }
  }

  // The reply with at most `max_blocks` blocks.
  FramesReply Answer(const FramesRequest& request, size_t max_blocks) const {
    FramesReply reply{.token = token_, .after_serial = request.after_serial};
    if (request.token != token_) reply.after_serial = first_ - 1;
    reply.last_serial = reply.after_serial;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const uint64_t serial = first_ + i;
      if (serial <= reply.after_serial) continue;
      if (reply.serials.size() == max_blocks) break;
      reply.serials.push_back(serial);
      reply.blocks.push_back(blocks_[i]);
      reply.last_serial = serial;
    }
    return reply;
  }

 private:
  uint64_t token_, first_;
  std::vector<std::vector<std::byte>> blocks_;
};

KeptFrames Keep(int64_t max_bytes, bool decompresses = true) {
  return KeptFrames({.max_bytes = max_bytes, .decompresses = decompresses},
                    {.frame_bytes = kFrameBytes});
}

std::vector<std::byte> Decoded(const KeptBlock& block) {
  std::vector<std::byte> frame(kFrameBytes);
  FrameDecoder().Decode(FrameBlockView(block.bytes), 0, 1, frame);
  return frame;
}

bool Has(const KeptFrames& kept, uint64_t serial) {
  return !kept.Find(serial).bytes.empty();
}

TEST(KeptFramesTest, AsksForWhatIsMissingUntilAllIsHere) {
  const Service service(/*token=*/5, 3, 9);
  KeptFrames kept = Keep(1 << 20);
  EXPECT_EQ(kept.range().last_serial, 0u);
  EXPECT_EQ(kept.Take(service.Answer(kept.Request(), 4)), 4);
  EXPECT_EQ(kept.range(), (KeptRange{5, 3, 6}));
  EXPECT_EQ(kept.Take(service.Answer(kept.Request(), 4)), 3);
  EXPECT_EQ(kept.range(), (KeptRange{5, 3, 9}));
  EXPECT_EQ(kept.Take(service.Answer(kept.Request(), 4)), 0);
  for (uint64_t serial = 3; serial <= 9; ++serial) {
    EXPECT_EQ(Decoded(kept.Find(serial)), FrameOf(serial));
  }
  EXPECT_FALSE(Has(kept, 2));
  EXPECT_FALSE(Has(kept, 10));
  EXPECT_EQ(kept.size_bytes(), 7 * kBlockBytes);
}

TEST(KeptFramesTest, CompressedBlocksStayAsTheyCame) {
  const Service service(5, 1, 1);
  KeptFrames kept = Keep(1 << 20, /*decompresses=*/false);
  kept.Take(service.Answer(kept.Request(), 4));
  EXPECT_TRUE(std::ranges::equal(kept.Find(1).bytes, BlockOf(1)));
  EXPECT_LT(kept.size_bytes(), kFrameBytes);
}

TEST(KeptFramesTest, TheOldestLeaveTheRangeFirstAndTheMemoryLater) {
  const Service service(5, 1, 6);
  KeptFrames kept = Keep(4 * kBlockBytes);
  kept.Take(service.Answer(kept.Request(), 100));
  EXPECT_EQ(kept.range(), (KeptRange{5, 3, 6}));
  EXPECT_EQ(kept.size_bytes(), 4 * kBlockBytes);
  // a reply under way may name it
  EXPECT_TRUE(Has(kept, 1));
  kept.Forget(/*first_needed=*/2);
  EXPECT_FALSE(Has(kept, 1));
  EXPECT_TRUE(Has(kept, 2));
  kept.Forget(100);
  EXPECT_FALSE(Has(kept, 2));
  EXPECT_TRUE(Has(kept, 3));
}

// A store of many slabs whose blocks all stay readable, whatever slab they
// share.
TEST(KeptFramesTest, BlocksOfManySlabsKeepTheirFrames) {
  constexpr uint64_t kBlocks = 2000;
  const Service service(5, 1, kBlocks);
  KeptFrames kept = Keep(kBlocks / 2 * kBlockBytes);
  std::vector<KeptBlock> held;
  while (kept.Take(service.Answer(kept.Request(), 37)) > 0) {
    held.push_back(kept.Find(kept.range().last_serial));
    kept.Forget(kept.range().first_serial);
  }
  EXPECT_EQ(kept.num_fetched(), static_cast<int64_t>(kBlocks));
  EXPECT_EQ(kept.num_evicted(), static_cast<int64_t>(kBlocks) / 2);
  for (uint64_t serial = kept.range().first_serial; serial <= kBlocks;
       ++serial) {
    const KeptBlock block = kept.Find(serial);
    EXPECT_EQ(Decoded(block), FrameOf(serial));
    const auto* frame = FrameBlockView(block.bytes).Payload(0).data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(frame) % HostBuffer::kAlignment, 0u);
  }
  // its users hold a block that has left the store
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(Decoded(held[i]), FrameOf(std::min(kBlocks, 37 * (i + 1))));
  }
}

TEST(KeptFramesTest, ABlockLargerThanAllRoomIsNotKept) {
  const Service service(5, 1, 3);
  KeptFrames kept = Keep(kBlockBytes - 1);
  kept.Take(service.Answer(kept.Request(), 100));
  EXPECT_EQ(kept.range(), (KeptRange{5, 4, 3}));
  EXPECT_EQ(kept.size_bytes(), 0);
  EXPECT_FALSE(kept.range().Holds(3));
}

TEST(KeptFramesTest, AnotherTokenBeginsAnew) {
  KeptFrames kept = Keep(1 << 20);
  kept.Take(Service(5, 1, 6).Answer(kept.Request(), 100));
  const Service restarted(8, 4, 5);
  kept.Take(restarted.Answer(kept.Request(), 100));
  EXPECT_EQ(kept.range(), (KeptRange{8, 4, 5}));
  EXPECT_FALSE(Has(kept, 6));
  EXPECT_EQ(kept.size_bytes(), 2 * kBlockBytes);
}

TEST(KeptFramesTest, AReplyThatComesTwiceCountsOnce) {
  const Service service(5, 1, 6);
  KeptFrames kept = Keep(1 << 20);
  const FramesRequest first = kept.Request();
  kept.Take(service.Answer(first, 3));
  const FramesRequest second = kept.Request();
  EXPECT_EQ(kept.Take(service.Answer(second, 3)), 3);
  EXPECT_EQ(kept.Take(service.Answer(second, 3)), 0);
  EXPECT_EQ(kept.range(), (KeptRange{5, 1, 6}));
  EXPECT_EQ(kept.size_bytes(), 6 * kBlockBytes);
}

TEST(KeptFramesTest, NothingIsKeptWithoutMemoryOrFrames) {
  EXPECT_FALSE(Keep(0).is_on());
  EXPECT_FALSE(KeptFrames({.max_bytes = 1}, {.frame_bytes = 0}).is_on());
  EXPECT_TRUE(Keep(1).is_on());
}

}  // namespace
}  // namespace replicant::replay
