#include "env/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace replicant::env {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(InterleaveTest, FramesBecomeChannels) {
  // 2 frames of 2 pixels; tens: frame, ones: pixel
  const auto frames = Bytes({11, 12, 13, 14, 15, 16, 21, 22, 23, 24, 25, 26});
  std::vector<std::byte> out(frames.size());
  InterleaveFrames(frames, /*num_frames=*/2, out);
  EXPECT_EQ(out, Bytes({11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26}));
}

TEST(InterleaveTest, EveryByteFindsItsPlace) {
  for (const int64_t stack : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16}) {
    for (const int64_t pixels : {1, 5, 20, 21, 64, 4096}) {
      std::vector<std::byte> frames(static_cast<size_t>(stack * pixels * 3));
      RandomStream random(7, "frames");
      for (std::byte& value : frames) {
        value = static_cast<std::byte>(random() & 0xFF);
      }
      std::vector<std::byte> out(frames.size()), wanted(frames.size());
      for (int64_t f = 0; f < stack; ++f) {
        for (int64_t p = 0; p < pixels; ++p) {
          for (int64_t c = 0; c < 3; ++c) {
            wanted[static_cast<size_t>((p * stack + f) * 3 + c)] =
                frames[static_cast<size_t>((f * pixels + p) * 3 + c)];
          }
        }
      }
      InterleaveFrames(frames, stack, out);
      EXPECT_TRUE(out == wanted) << stack << " frames of " << pixels;
    }
  }
}

// Past the caches, where the image is aligned, and through them, where not.
TEST(InterleaveTest, StreamedImagesHaveTheSameBytes) {
  constexpr size_t kPixels = 1000;
  for (const size_t stack : {1, 2, 3, 8, 9}) {
    std::vector<uint8_t> bytes(stack * kPixels * kPixelBytes);
    RandomStream random(7, "frames");
    for (uint8_t& value : bytes) value = static_cast<uint8_t>(random());
    std::vector<std::span<const uint8_t>> frames;
    for (size_t k = 0; k < stack; ++k) {
      frames.push_back(std::span(bytes).subspan(k * kPixels * kPixelBytes,
                                                kPixels * kPixelBytes));
    }
    std::vector<uint8_t> wanted(bytes.size());
    InterleaveFrames(frames, wanted);
    std::vector<uint8_t> room(bytes.size() + 32);
    for (const size_t offset : {0, 16, 5}) {
      const std::span out = std::span(room).subspan(offset, bytes.size());
      InterleaveFrames(frames, out, kPixelBytes, Stores::kStreamed);
      EXPECT_TRUE(std::ranges::equal(out, wanted))
          << stack << " frames at " << offset;
    }
  }
}

TEST(InterleaveTest, TakesAFrameSeveralTimes) {
  const std::vector<uint8_t> first = {1, 2, 3}, second = {4, 5, 6};
  std::vector<uint8_t> out(9);
  const std::span<const uint8_t> frames[] = {first, first, second};
  InterleaveFrames(frames, out);
  EXPECT_EQ(out, (std::vector<uint8_t>{1, 2, 3, 1, 2, 3, 4, 5, 6}));
}

TEST(InterleaveTest, PixelsMayHaveAnyNumberOfBytes) {
  for (const size_t pixel_bytes : {1, 2, 4}) {
    std::vector<uint8_t> first, second, wanted;
    for (size_t i = 0; i < 5 * pixel_bytes; ++i) {
      first.push_back(static_cast<uint8_t>(i));
      second.push_back(static_cast<uint8_t>(100 + i));
    }
    for (size_t p = 0; p < 5; ++p) {
      for (const auto* frame : {&first, &second}) {
        for (size_t c = 0; c < pixel_bytes; ++c) {
          wanted.push_back((*frame)[p * pixel_bytes + c]);
        }
      }
    }
    std::vector<uint8_t> out(wanted.size());
    const std::span<const uint8_t> frames[] = {first, second};
    InterleaveFrames(frames, out, pixel_bytes);
    EXPECT_EQ(out, wanted) << pixel_bytes;
  }
}

TEST(InterleaveTest, RefusesOtherSizes) {
  std::vector<std::byte> frames(12), out(12);
  EXPECT_THROW(InterleaveFrames(frames, 2, std::span(out).first(6)),
               InvalidArgument);
  EXPECT_THROW(
      InterleaveFrames(std::span(frames).first(9), 2, std::span(out).first(9)),
      InvalidArgument);
  EXPECT_THROW(
      InterleaveFrames(std::span(frames).first(8), 2, std::span(out).first(8)),
      InvalidArgument);
  EXPECT_THROW(InterleaveFrames(frames, 0, out), InvalidArgument);
  const std::vector<uint8_t> small(3), large(6);
  std::vector<uint8_t> image(6);
  const std::span<const uint8_t> unequal[] = {small, large};
  EXPECT_THROW(InterleaveFrames(unequal, image), InvalidArgument);
}

}  // namespace
}  // namespace replicant::env
