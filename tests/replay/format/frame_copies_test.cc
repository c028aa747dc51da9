#include "replay/format/frame_copies.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/rng.h"

namespace replicant::replay {
namespace {

// Few bytes go through the caches, many past them; sources and targets begin
// anywhere, and nothing beside the targets is written.
TEST(FrameCopiesTest, EveryFrameArrivesAndNothingElseChanges) {
  for (const size_t num_copies : {1, 7, 400}) {
    for (const size_t frame_bytes : {1, 63, 300, 21'168}) {
      RandomStream random(3, "frames");
      std::vector<std::byte> from(50 * frame_bytes + 64);
      for (std::byte& value : from) value = static_cast<std::byte>(random());
      // a gap of 5 bytes after each
      const size_t stride = frame_bytes + 5;
      std::vector<std::byte> to(num_copies * stride), wanted(to.size());
      std::vector<FrameCopy> copies;
      for (size_t i = 0; i < num_copies; ++i) {
        const std::byte* const source = &from[random.UniformInt(
            static_cast<int64_t>(from.size() - frame_bytes))];
        copies.push_back({source, &to[i * stride]});
        std::memcpy(&wanted[i * stride], source, frame_bytes);
      }
      CopyFrames(copies, frame_bytes);
      EXPECT_TRUE(to == wanted) << num_copies << " of " << frame_bytes;
    }
  }
}

TEST(FrameCopiesTest, NoCopiesAreAllowed) { CopyFrames({}, 300); }

}  // namespace
}  // namespace replicant::replay
