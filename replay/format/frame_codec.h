#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace replicant::replay {

// Compression of frames; kLz4 is the default (bench/results/2026-11/
// frame_codecs.csv has the measurements). In frames above 64 KiB LZ4 cannot
// refer to the first frame of the block, and kZstd is the better choice.
enum class FrameCodec : uint16_t { kNone = 0, kLz4 = 1, kZstd = 2 };

// "none", "lz4", "zstd".
std::string_view ToString(FrameCodec codec);

// A frame block is 1 to kMaxBlockFrames successive frames of one episode, all
// of frame_bytes bytes, in one block of memory. The first frame is compressed
// alone, and each other frame with the first as its dictionary; so any frame
// can be read by decoding at most two. Little-endian:
//
//   offset  size  field
//        0     4  magic "RFG1"
//        4     2  codec (0 none, 1 LZ4 block, 2 zstd frame)
//        6     2  num_frames
//        8     4  frame_bytes, 1 to kMaxFrameBytes
//       12     4  zero
//       16   4 n  ends: where in the payload frame i ends; it begins where
//                 frame i - 1 ends, the first at 0
//   16 + 4 n      payload, to the end of the block
//
// A frame that compression does not shrink is stored uncompressed: its length
// in the payload is then frame_bytes.
inline constexpr int64_t kMaxBlockFrames = 256;
inline constexpr int64_t kMaxFrameBytes = int64_t{1} << 26;

// Compresses the frames of one episode, block by block.
//
// Thread-safety: one thread at a time.
class FrameBlockEncoder {
 public:
  // Throws InvalidArgument unless frame_bytes is in [1, kMaxFrameBytes] and
  // block_size in [1, kMaxBlockFrames].
  FrameBlockEncoder(FrameCodec codec, int64_t frame_bytes, int64_t block_size);
  ~FrameBlockEncoder();
  FrameBlockEncoder(FrameBlockEncoder&&) noexcept;
  FrameBlockEncoder& operator=(FrameBlockEncoder&&) noexcept;

  // Compresses one more frame into the current block. Throws InvalidArgument
  // unless `frame` has frame_bytes bytes. Precondition: not full() (checked;
  // aborts).
  void Add(std::span<const std::byte> frame);

  int64_t num_frames() const;
  bool full() const;

  // Returns the block of the frames added since the last call and starts the
  // next block. Precondition: num_frames() > 0 (checked; aborts).
  std::vector<std::byte> Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A block of `num_frames` uncompressed frames: its size, the size of what comes
// before its frames, and the header itself, which is written to `block`. The
// caller writes the frames after it, one after the other.
size_t RawBlockBytes(int64_t frame_bytes, int64_t num_frames);
size_t RawHeaderBytes(int64_t num_frames);
void WriteRawHeader(int64_t frame_bytes, int64_t num_frames,
                    std::span<std::byte> block);

// The checked header of a frame block; borrows the block.
//
// Thread-safety: immutable.
class FrameBlockView {
 public:
  // Checks the whole header, and that the payload has the stated length. Throws
  // IoError naming the fault; reads nothing outside `block`, whose contents may
  // be arbitrary.
  explicit FrameBlockView(std::span<const std::byte> block);

  FrameCodec codec() const { return codec_; }
  int64_t num_frames() const { return num_frames_; }
  int64_t frame_bytes() const { return frame_bytes_; }
  // The compressed bytes of frame `index` in [0, num_frames()).
  std::span<const std::byte> Payload(int64_t index) const;

  // SubsetBytes() is the size of a block with only the frames that decoding
  // [first, first + count) needs: these and, if it is their dictionary, the
  // first one. WriteSubset() writes that block to `out`, which must have this
  // size. There, frame first + i is frame SubsetIndex(first) + i. Precondition:
  // the range lies within the block, count > 0 (checked).
  size_t SubsetBytes(int64_t first, int64_t count) const;
  void WriteSubset(int64_t first, int64_t count,
                   std::span<std::byte> out) const;
  int64_t SubsetIndex(int64_t first) const;

 private:
  // Offset of the end of frame `index` in the payload.
  uint32_t End(int64_t index) const;
  bool NeedsFirst(int64_t first) const;

  FrameCodec codec_;
  int64_t num_frames_;
  int64_t frame_bytes_;
  std::span<const std::byte> block_;
};

// Decompresses frames of blocks.
//
// Thread-safety: one thread at a time; a reader has one per thread.
class FrameDecoder {
 public:
  FrameDecoder();
  ~FrameDecoder();
  FrameDecoder(FrameDecoder&&) noexcept;
  FrameDecoder& operator=(FrameDecoder&&) noexcept;

  // A frame of a block and its destination, [frame_bytes].
  struct Target {
    int64_t index;
    std::byte* out;
  };
  // Decodes frames of a block, each to its target and only once; a frame
  // with several targets is copied. Preconditions: `targets` ascend by
  // index, lie within the block (checked; aborts) and do not overlap in
  // memory. Throws IoError, leaving undefined output, if the payload breaks
  // the format.
  void Decode(const FrameBlockView& block, std::span<const Target> targets);
  // Decodes the frames [first, first + count) in order to `out`, [count,
  // frame_bytes] (checked; aborts).
  void Decode(const FrameBlockView& block, int64_t first, int64_t count,
              std::span<std::byte> out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace replicant::replay
