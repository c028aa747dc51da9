#include "learner/workloads/d4pg/batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace replicant::learner {
namespace {

using ::testing::ElementsAre;

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(InterleaveFramesTest, FramesBecomeChannels) {
  // 2 rows of 2 frames of 2 pixels; tens: frame, ones: pixel
  const auto frames = Bytes({11, 12, 13, 14, 15, 16, 21, 22, 23, 24, 25, 26,
                             31, 32, 33, 34, 35, 36, 41, 42, 43, 44, 45, 46});
  std::vector<std::byte> out(frames.size());
  InterleaveFrames(frames, /*stack=*/2, /*pixels=*/2, /*num_threads=*/1, out);
  EXPECT_EQ(out, Bytes({11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26,
                        31, 32, 33, 41, 42, 43, 34, 35, 36, 44, 45, 46}));
}

TEST(InterleaveFramesTest, EveryByteFindsItsPlace) {
  for (const int64_t stack : {1, 2, 3, 4, 16}) {
    for (const int64_t pixels : {1, 5, 20, 21, 64, 4096}) {
      std::vector<std::byte> frames(
          static_cast<size_t>(2 * stack * pixels * 3));
      RandomStream random(7, "frames");
      for (std::byte& value : frames) {
        value = static_cast<std::byte>(random() & 0xFF);
      }
      std::vector<std::byte> out(frames.size()), wanted(frames.size());
      for (int64_t row = 0; row < 2; ++row) {
        for (int64_t f = 0; f < stack; ++f) {
          for (int64_t p = 0; p < pixels; ++p) {
            for (int64_t c = 0; c < 3; ++c) {
              wanted[static_cast<size_t>(((row * pixels + p) * stack + f) * 3 +
                                         c)] =
                  frames[static_cast<size_t>(
                      ((row * stack + f) * pixels + p) * 3 + c)];
            }
          }
        }
      }
      for (const int num_threads : {1, 2, 3}) {
        std::fill(out.begin(), out.end(), std::byte{0});
        InterleaveFrames(frames, stack, pixels, num_threads, out);
        EXPECT_TRUE(out == wanted)
            << stack << " frames of " << pixels << ", threads " << num_threads;
      }
    }
  }
}

TEST(InterleaveFramesTest, RefusesOtherSizes) {
  std::vector<std::byte> frames(12), out(12);
  EXPECT_THROW(InterleaveFrames(frames, 2, 1, 1, std::span(out).first(6)),
               InvalidArgument);
  EXPECT_THROW(InterleaveFrames(std::span(frames).first(9), 2, 1, 1,
                                std::span(out).first(9)),
               InvalidArgument);
}

}  // namespace
}  // namespace replicant::learner
