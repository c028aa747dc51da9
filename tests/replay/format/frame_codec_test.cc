#include "replay/format/frame_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "base/rng.h"

namespace replicant::replay {
namespace {

using Bytes = std::vector<std::byte>;

constexpr FrameCodec kAllCodecs[] = {FrameCodec::kNone, FrameCodec::kLz4,
                                     FrameCodec::kZstd};

// Frames of a slowly moving bright square on a ground of noise that stays the
// same: each alone hardly compresses, with the first as dictionary it does.
std::vector<Bytes> MovingSquare(int64_t count, int64_t side) {
  RandomStream random(1, "ground");
  Bytes ground(static_cast<size_t>(side * side));
  for (std::byte& b : ground) b = static_cast<std::byte>(random.UniformInt(64));
  std::vector<Bytes> frames(static_cast<size_t>(count), ground);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t y = 2; y < 8; ++y) {
      std::memset(&frames[static_cast<size_t>(i)]
                         [static_cast<size_t>(y * side + i % (side - 8))],
                  255, 6);
    }
  }
  return frames;
}

Bytes Encode(FrameCodec codec, const std::vector<Bytes>& frames) {
  FrameBlockEncoder encoder(codec, static_cast<int64_t>(frames[0].size()),
                            static_cast<int64_t>(frames.size()));
  for (const Bytes& frame : frames) encoder.Add(frame);
  EXPECT_TRUE(encoder.full());
  return encoder.Finish();
}

// Catches a wrong dictionary, a wrong range and a wrong place in `out`.
TEST(FrameCodecTest, EveryRangeOfABlockDecodesToItsFrames) {
  for (const FrameCodec codec : kAllCodecs) {
    for (const int64_t count : {1, 2, 5}) {
      SCOPED_TRACE(::testing::Message() << ToString(codec) << " " << count);
      const std::vector<Bytes> frames = MovingSquare(count, 24);
      const Bytes bytes = Encode(codec, frames);
      const FrameBlockView block(bytes);
      EXPECT_EQ(block.codec(), codec);
      EXPECT_EQ(block.num_frames(), count);
      EXPECT_EQ(block.frame_bytes(), 24 * 24);
      FrameDecoder decoder;
      for (int64_t first = 0; first < count; ++first) {
        for (int64_t n = 1; first + n <= count; ++n) {
          Bytes expected;
          for (int64_t i = first; i < first + n; ++i) {
            const Bytes& frame = frames[static_cast<size_t>(i)];
            expected.insert(expected.end(), frame.begin(), frame.end());
          }
          Bytes decoded(expected.size());
          decoder.Decode(block, first, n, decoded);
          EXPECT_EQ(decoded, expected);

          // and the same from a block of only what is needed
          Bytes subset(block.SubsetBytes(first, n));
          block.WriteSubset(first, n, subset);
          const FrameBlockView small(subset);
          Bytes from_subset(expected.size());
          decoder.Decode(small, block.SubsetIndex(first), n, from_subset);
          EXPECT_EQ(from_subset, expected);
        }
      }
    }
  }
}

TEST(FrameCodecTest, FramesAfterTheFirstAreSmall) {
  for (const FrameCodec codec : {FrameCodec::kLz4, FrameCodec::kZstd}) {
    const Bytes bytes = Encode(codec, MovingSquare(8, 84));
    const FrameBlockView block(bytes);
    for (int64_t i = 1; i < 8; ++i) {
      EXPECT_LT(block.Payload(i).size(), block.Payload(0).size() / 10)
          << ToString(codec) << " frame " << i;
    }
  }
}

TEST(FrameCodecTest, NoiseIsStoredAsItIs) {
  RandomStream random(2, "noise");
  std::vector<Bytes> frames(3, Bytes(500));
  for (Bytes& frame : frames) {
    for (std::byte& b : frame) b = static_cast<std::byte>(random());
  }
  for (const FrameCodec codec : kAllCodecs) {
    const Bytes bytes = Encode(codec, frames);
    EXPECT_EQ(bytes.size(), 16u + 3 * 4 + 3 * 500) << ToString(codec);
  }
}

// Catches state of one block that leaks into the next.
TEST(FrameCodecTest, AnEncoderIsReusedBlockByBlock) {
  const std::vector<Bytes> frames = MovingSquare(6, 24);
  for (const FrameCodec codec : kAllCodecs) {
    FrameBlockEncoder encoder(codec, 24 * 24, 4);
    for (int i = 0; i < 4; ++i) encoder.Add(frames[static_cast<size_t>(i)]);
    const Bytes four = encoder.Finish();
    EXPECT_EQ(encoder.num_frames(), 0);
    encoder.Add(frames[4]);
    encoder.Add(frames[5]);
    const Bytes two = encoder.Finish();
    EXPECT_EQ(two, Encode(codec, {frames[4], frames[5]}));
    EXPECT_EQ(four,
              Encode(codec, {frames[0], frames[1], frames[2], frames[3]}));
  }
}

TEST(FrameCodecTest, FramesOfOneByteAndOfMoreThanLz4sWindowAreKept) {
  for (const FrameCodec codec : kAllCodecs) {
    for (const size_t size : {size_t{1}, size_t{200'000}}) {
      const std::vector<Bytes> frames(3, Bytes(size, std::byte{7}));
      const Bytes bytes = Encode(codec, frames);
      Bytes decoded(2 * size);
      FrameDecoder().Decode(FrameBlockView(bytes), 1, 2, decoded);
      EXPECT_EQ(decoded, Bytes(2 * size, std::byte{7}));
    }
  }
}

std::string MessageOf(const Bytes& bytes) {
  try {
    const FrameBlockView block(bytes);
    Bytes out(static_cast<size_t>(block.num_frames() * block.frame_bytes()));
    FrameDecoder().Decode(block, 0, block.num_frames(), out);
  } catch (const IoError& e) {
    return e.what();
  }
  return "decodes";
}

Bytes With(Bytes bytes, size_t offset, uint8_t value) {
  bytes[offset] = std::byte{value};
  return bytes;
}

TEST(FrameCodecTest, ADamagedHeaderIsNamed) {
  const Bytes good = Encode(FrameCodec::kNone, MovingSquare(2, 10));
  ASSERT_EQ(MessageOf(good), "decodes");
  EXPECT_EQ(MessageOf(Bytes(15)),
            "frame block: its 15 bytes do not begin with the magic 'RFG1' and "
            "a header of 16 bytes");
  EXPECT_EQ(MessageOf(With(good, 0, 0)),
            "frame block: its 224 bytes do not begin with the magic 'RFG1' and "
            "a header of 16 bytes");
  EXPECT_EQ(MessageOf(With(good, 4, 9)), "frame block: unknown codec 9");
  EXPECT_EQ(MessageOf(With(good, 6, 0)),
            "frame block: 0 frames are outside [1, 256]");
  EXPECT_EQ(MessageOf(With(good, 11, 255)),
            "frame block: frame_bytes 4278190180 is outside [1, 67108864]");
  EXPECT_EQ(MessageOf(With(good, 12, 1)), "frame block: the header is damaged");
  EXPECT_EQ(MessageOf(With(good, 16, 90)),
            "frame block: frame 0 of 100 bytes takes the payload [0, 90)");
  EXPECT_EQ(MessageOf(Bytes(good.begin(), good.end() - 1)),
            "frame block: the payload has 199 bytes, but the header says 200");
}

// Whatever happens to the bytes: an IoError or some frames, never a crash (the
// sanitizers watch).
TEST(FrameCodecTest, DamagedPayloadsNeverCrash) {
  RandomStream random(3, "damage");
  for (const FrameCodec codec : kAllCodecs) {
    const Bytes good = Encode(codec, MovingSquare(3, 16));
    for (int i = 0; i < 2000; ++i) {
      Bytes bad = good;
      const auto size = static_cast<int64_t>(bad.size());
      for (int64_t j = random.UniformInt(3); j >= 0; --j) {
        bad[static_cast<size_t>(random.UniformInt(size))] =
            static_cast<std::byte>(random());
      }
      if (random.UniformInt(4) == 0) {
        bad.resize(static_cast<size_t>(random.UniformInt(size)));
      }
      MessageOf(bad);
    }
  }
}

TEST(FrameCodecTest, APayloadThatDoesNotDecodeIsNamed) {
  Bytes bytes = Encode(FrameCodec::kLz4, MovingSquare(2, 84));
  std::memset(bytes.data() + 24, 0xff, bytes.size() - 24);
  EXPECT_EQ(MessageOf(bytes),
            "frame block: frame 1 does not decode (lz4) to 7056 bytes");
}

TEST(FrameCodecTest, RefusesBadSettingsAndFrames) {
  const auto message = [](auto function) -> std::string {
    try {
      function();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no InvalidArgument";
  };
  EXPECT_EQ(message([] { FrameBlockEncoder(FrameCodec::kLz4, 0, 1); }),
            "FrameBlockEncoder: frame_bytes 0 is outside [1, 67108864]");
  EXPECT_EQ(message([] { FrameBlockEncoder(FrameCodec::kLz4, 1, 257); }),
            "FrameBlockEncoder: block_size 257 is outside [1, 256]");
  FrameBlockEncoder encoder(FrameCodec::kLz4, 4, 1);
  EXPECT_EQ(message([&] { encoder.Add(Bytes(3)); }),
            "FrameBlockEncoder::Add: a frame has 3 bytes, expected 4");
  EXPECT_EQ(encoder.num_frames(), 0);
}

}  // namespace
}  // namespace replicant::replay
