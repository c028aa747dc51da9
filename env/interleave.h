#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace replicant::env {

// How an image is written: through the caches, for a reader that follows at
// once, or past them, for one of many megabytes that they would not keep.
enum class Stores { kCached, kStreamed };

// The bytes of a camera's pixel: red, green, blue.
inline constexpr size_t kPixelBytes = 3;
// Frames that one image may hold.
inline constexpr size_t kMaxInterleavedFrames = 64;

// Makes one image from K frames; its channels are the channels of all frames in
// order:
//
//   frames   K times [pixels, C]
//   out      [pixels, K * C]     out[p, C k + c] = frames[k][p, c]
//
// C is `pixel_bytes`. A frame may be given several times; none may overlap
// `out`. Throws InvalidArgument unless K is in [1, kMaxInterleavedFrames], all
// frames have one size, a multiple of `pixel_bytes`, and `out` has K times that
// size.
void InterleaveFrames(std::span<const std::span<const uint8_t>> frames,
                      std::span<uint8_t> out, size_t pixel_bytes = kPixelBytes,
                      Stores stores = Stores::kCached);

// Interleaves frames stored one after another, [num_frames, pixels, 3].
void InterleaveFrames(std::span<const std::byte> frames, int64_t num_frames,
                      std::span<std::byte> out);

}  // namespace replicant::env
