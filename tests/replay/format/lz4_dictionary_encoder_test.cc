#include "replay/format/lz4_dictionary_encoder.h"

#include <gtest/gtest.h>
#include <lz4.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace replicant::replay {
namespace {

using Bytes = std::vector<std::byte>;

// A frame of runs, noise and a part of `like` that has moved: every kind of
// sequence, with lengths on both sides of 15 and 255.
Bytes MakeFrame(const Bytes& like, size_t size, std::mt19937& rng) {
  Bytes frame;
  while (frame.size() < size) {
    const size_t length = std::min<size_t>(
        size - frame.size(), size_t{1} << (rng() % 10) | (rng() % 7));
    const int kind = static_cast<int>(rng() % 4);
    for (size_t i = 0; i < length; ++i) {
      const size_t at = frame.size();
      if (kind == 0) {
        frame.push_back(static_cast<std::byte>(rng()));
      } else if (kind == 1 || like.empty()) {
        frame.push_back(std::byte{7});
      } else {
        frame.push_back(like[kind == 2 ? at : (at + 13) % like.size()]);
      }
    }
  }
  return frame;
}

int Decode(const Bytes& block, size_t size, const Bytes& dictionary,
           Bytes* frame) {
  frame->resize(dictionary.size());
  return LZ4_decompress_safe_usingDict(
      reinterpret_cast<const char*>(block.data()),
      reinterpret_cast<char*>(frame->data()), static_cast<int>(size),
      static_cast<int>(frame->size()),
      reinterpret_cast<const char*>(dictionary.data()),
      static_cast<int>(dictionary.size()));
}

// LZ4's own decoder is the oracle.
TEST(Lz4DictionaryEncoderTest, WhatItWritesIsDecodedByLz4) {
  std::mt19937 rng(20190301);
  std::vector<size_t> sizes = {1,   4,    11,   12,   13,    14,
                               100, 1000, 4096, 7056, 21168, 32767};
  for (int i = 0; i < 200; ++i) sizes.push_back(1 + rng() % 600);
  int num_compressed = 0;
  for (const size_t size : sizes) {
    SCOPED_TRACE(size);
    Lz4DictionaryEncoder encoder(size);
    for (int chunk = 0; chunk < 3; ++chunk) {
      const Bytes dictionary = MakeFrame({}, size, rng);
      encoder.SetDictionary(dictionary);
      for (int i = 0; i < 4; ++i) {
        const Bytes frame = MakeFrame(dictionary, size, rng);
        Bytes block(size + Lz4DictionaryEncoder::kSlackBytes + 1,
                    std::byte{0xA5});
        const size_t written = encoder.Compress(frame, block.data());
        ASSERT_EQ(block.back(), std::byte{0xA5});
        ASSERT_LT(written, size);
        if (written == 0) continue;
        ++num_compressed;
        Bytes decoded;
        ASSERT_EQ(Decode(block, written, dictionary, &decoded),
                  static_cast<int>(size));
        ASSERT_EQ(decoded, frame);
      }
    }
  }
  EXPECT_GT(num_compressed, 1000);
}

TEST(Lz4DictionaryEncoderTest, AFrameThatEqualsTheDictionaryTakesAFewBytes) {
  std::mt19937 rng(1);
  const Bytes dictionary = MakeFrame({}, 21168, rng);
  Lz4DictionaryEncoder encoder(dictionary.size());
  encoder.SetDictionary(dictionary);
  Bytes block(dictionary.size() + Lz4DictionaryEncoder::kSlackBytes);
  // one match: 21163 / 255 bytes of length
  EXPECT_LT(encoder.Compress(dictionary, block.data()), 100u);
}

TEST(Lz4DictionaryEncoderTest, NoiseIsNotCompressed) {
  std::mt19937 rng(2);
  Bytes dictionary(5000), frame(5000);
  for (std::byte& b : dictionary) b = static_cast<std::byte>(rng());
  for (std::byte& b : frame) b = static_cast<std::byte>(rng());
  Lz4DictionaryEncoder encoder(dictionary.size());
  encoder.SetDictionary(dictionary);
  Bytes block(dictionary.size() + Lz4DictionaryEncoder::kSlackBytes);
  EXPECT_EQ(encoder.Compress(frame, block.data()), 0u);
}

TEST(Lz4DictionaryEncoderDeathTest, OtherSizesAreABug) {
  EXPECT_DEATH(Lz4DictionaryEncoder(0), "frames of 0 bytes");
  EXPECT_DEATH(Lz4DictionaryEncoder(32768), "frames of 32768 bytes");
}

}  // namespace
}  // namespace replicant::replay
