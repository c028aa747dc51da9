#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace replicant::replay {

// Compresses frames that resemble a dictionary of the same length into LZ4
// blocks. Every LZ4 library decodes them with that external dictionary.
//
// Frames of one episode are mostly equal at the same position. The encoder
// first looks for a match at that position of the dictionary, which needs no
// hash and finds the long matches, then in a table of earlier positions. On
// frames of the Control Suite it takes half the time of LZ4's own encoder and
// gives smaller blocks (bench/results/2026-11/frame_codecs.csv).
//
// Thread-safety: one thread at a time.
// Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
class Lz4DictionaryEncoder {
 public:
  // Positions in dictionary and frame fit in 16 bits.
  static constexpr size_t kMaxFrameBytes = 32767;
  // Bytes that Compress() may write after the block.
  static constexpr size_t kSlackBytes = 64;

  // Precondition: frame_bytes in [1, kMaxFrameBytes] (checked; aborts).
  explicit Lz4DictionaryEncoder(size_t frame_bytes);

  // Sets the dictionary of the next frames, [frame_bytes] (checked).
  void SetDictionary(std::span<const std::byte> dictionary);

  // Writes the block of `frame`, [frame_bytes] (checked), to `out` and returns
  // its size; 0 if it would not be below frame_bytes. `out` has room for
  // frame_bytes + kSlackBytes (not checked).
  size_t Compress(std::span<const std::byte> frame, std::byte* out);

 private:
  static constexpr int kHashBits = 13;
  // The last position of every hash of 5 bytes.
  using Table = std::array<uint16_t, size_t{1} << kHashBits>;

  const size_t frame_bytes_;
  Table dictionary_table_{};
  Table table_{};
  // the dictionary, the frame after it, and some readable padding
  std::vector<uint8_t> window_;
};

}  // namespace replicant::replay
