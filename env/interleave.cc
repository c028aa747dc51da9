// Frames are interleaved 16 pixels at a time: 48 K bytes of the image, which
// are 3 K whole vectors. A vector of the image holds parts of at most five
// successive pixels, so of each frame one vector has all its bytes. One byte
// shuffle per frame moves them into their places and leaves zeros elsewhere;
// the vector of the image is the OR of its K shuffled frames. The shuffles are
// the same for every 16 pixels: a table computed at compile time. Whole
// vectors, each written once, may go past the caches. The end of the image is
// copied pixel by pixel, since a vector of a frame is read beyond its pixels.
#include "env/interleave.h"

#include <fmt/format.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace replicant::env {
namespace {

// the baseline has what this needs: no choice at run time
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kVectorBytes = 16;
constexpr size_t kGroupPixels = 16;
// Pixels that a frame's vector holds, in part.
constexpr size_t kVectorPixels = 6;
constexpr hn::FixedTag<uint8_t, kVectorBytes> kTag{};
// Frames lie in gigabytes, and the processor fetches ahead within a page only.
constexpr size_t kAheadBytes = 1024;

// The shuffles for kGroupPixels pixels of kFrames frames.
template <size_t kFrames>
struct ShufflePlan {
  static constexpr size_t kPixel = kPixelBytes * kFrames;
  static constexpr size_t kGroupBytes = kGroupPixels * kPixel;
  static constexpr size_t kVectors = kGroupBytes / kVectorBytes;

  // The first pixel that has bytes in vector v.
  static constexpr size_t FirstPixel(size_t v) {
    return v * kVectorBytes / kPixel;
  }
  // Byte b of vector v is byte take[v * kFrames + k][b] of frame k's vector,
  // which begins at FirstPixel(v); 0x80 takes none.
  alignas(kVectorBytes)
      std::array<std::array<uint8_t, kVectorBytes>, kVectors * kFrames> take{};

  constexpr ShufflePlan() {
    for (size_t v = 0; v < kVectors; ++v) {
      for (size_t b = 0; b < kVectorBytes; ++b) {
        const size_t at = v * kVectorBytes + b;
        const size_t pixel = at / kPixel - FirstPixel(v);
        const size_t owner = at / kPixelBytes % kFrames;
        for (size_t k = 0; k < kFrames; ++k) {
          take[v * kFrames + k][b] = static_cast<uint8_t>(
              k == owner ? pixel * kPixelBytes + at % kPixelBytes : 0x80);
        }
      }
    }
  }
};

// Interleaves `num_pixels` pixels one after the other.
void InterleavePixels(const uint8_t* const* frames, size_t num_frames,
                      size_t num_pixels, uint8_t* out) {
  // four bytes at a time are faster than three; the next pixel overwrites the
  // extra byte, and the last position has no room for it
  for (size_t p = 0; p + 1 < num_pixels; ++p) {
    for (size_t k = 0; k < num_frames; ++k) {
      std::memcpy(out, frames[k] + p * kPixelBytes, kPixelBytes + 1);
      out += kPixelBytes;
    }
  }
  if (num_pixels == 0) return;
  for (size_t k = 0; k < num_frames; ++k) {
    std::memcpy(out, frames[k] + (num_pixels - 1) * kPixelBytes, kPixelBytes);
    out += kPixelBytes;
  }
}

// Groups of pixels in vectors, then the rest one by one.
template <size_t kFrames, Stores kStores>
void InterleaveGroups(const uint8_t* const* frames, size_t num_pixels,
                      uint8_t* out) {
  using Plan = ShufflePlan<kFrames>;
  using V = hn::Vec<decltype(kTag)>;
  static constexpr Plan kPlan;
  const uint8_t* from[kFrames];
  std::copy_n(frames, kFrames, from);
  size_t p = 0;
  for (; p + kGroupPixels + kVectorPixels <= num_pixels; p += kGroupPixels) {
    HWY_UNROLL(8) for (size_t k = 0; k < kFrames; ++k) {
      hwy::Prefetch(from[k] + p * kPixelBytes + kAheadBytes);
    }
    HWY_UNROLL(24) for (size_t v = 0; v < Plan::kVectors; ++v) {
      V sum = hn::Zero(kTag);
      HWY_UNROLL(8) for (size_t k = 0; k < kFrames; ++k) {
        const V pixels =
            hn::LoadU(kTag, from[k] + (p + Plan::FirstPixel(v)) * kPixelBytes);
        const V take = hn::Load(kTag, kPlan.take[v * kFrames + k].data());
        sum = hn::Or(sum, hn::TableLookupBytesOr0(pixels, take));
      }
      if constexpr (kStores == Stores::kStreamed) {
        hn::Stream(sum, kTag, out + v * kVectorBytes);
      } else {
        hn::StoreU(sum, kTag, out + v * kVectorBytes);
      }
    }
    out += Plan::kGroupBytes;
  }
  for (const uint8_t*& frame : from) frame += p * kPixelBytes;
  InterleavePixels(from, kFrames, num_pixels - p, out);
}

template <size_t kFrames>
void InterleaveGroups(const uint8_t* const* frames, size_t num_pixels,
                      uint8_t* out, Stores stores) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(out) % kVectorBytes == 0;
  if (stores == Stores::kCached || !is_aligned) {
    InterleaveGroups<kFrames, Stores::kCached>(frames, num_pixels, out);
    return;
  }
  InterleaveGroups<kFrames, Stores::kStreamed>(frames, num_pixels, out);
  // before another thread is told of the image
  hwy::FlushStream();
}

// Frames of checked sizes.
void Interleave(const uint8_t* const* frames, size_t num_frames,
                size_t num_pixels, uint8_t* out, Stores stores) {
  switch (num_frames) {
    case 1:
      std::memcpy(out, frames[0], num_pixels * kPixelBytes);
      return;
    case 2:
      return InterleaveGroups<2>(frames, num_pixels, out, stores);
    case 3:
      return InterleaveGroups<3>(frames, num_pixels, out, stores);
    case 4:
      return InterleaveGroups<4>(frames, num_pixels, out, stores);
    case 5:
      return InterleaveGroups<5>(frames, num_pixels, out, stores);
    case 6:
      return InterleaveGroups<6>(frames, num_pixels, out, stores);
    case 7:
      return InterleaveGroups<7>(frames, num_pixels, out, stores);
    case 8:
      return InterleaveGroups<8>(frames, num_pixels, out, stores);
    default:
      return InterleavePixels(frames, num_frames, num_pixels, out);
  }
}

// The same for pixels of another size.
void InterleaveAny(const uint8_t* const* frames, size_t num_frames,
                   size_t num_pixels, size_t pixel_bytes, uint8_t* out) {
  for (size_t p = 0; p < num_pixels; ++p) {
    for (size_t k = 0; k < num_frames; ++k) {
      out = std::copy_n(frames[k] + p * pixel_bytes, pixel_bytes, out);
    }
  }
}

void CheckSizes(size_t num_frames, size_t frame_size, size_t out_size,
                size_t pixel_bytes) {
  if (num_frames < 1 || num_frames > kMaxInterleavedFrames) {
    throw InvalidArgument(
        fmt::format("InterleaveFrames: {} frames; allowed: 1 to {}", num_frames,
                    kMaxInterleavedFrames));
  }
  if (frame_size % pixel_bytes != 0 || out_size != num_frames * frame_size) {
    throw InvalidArgument(fmt::format(
        "InterleaveFrames: {} frames of {} bytes into {}; frames must be whole "
        "pixels of {} bytes, and the output as large as all frames together",
        num_frames, frame_size, out_size, pixel_bytes));
  }
}

}  // namespace

void InterleaveFrames(std::span<const std::span<const uint8_t>> frames,
                      std::span<uint8_t> out, size_t pixel_bytes,
                      Stores stores) {
  const size_t frame_size = frames.empty() ? 0 : frames[0].size();
  CheckSizes(frames.size(), frame_size, out.size(), pixel_bytes);
  std::array<const uint8_t*, kMaxInterleavedFrames> from;
  for (size_t k = 0; k < frames.size(); ++k) {
    if (frames[k].size() != frame_size) {
      throw InvalidArgument(
          fmt::format("InterleaveFrames: frame {} has {} bytes, frame 0 has {}",
                      k, frames[k].size(), frame_size));
    }
    from[k] = frames[k].data();
  }
  const size_t num_pixels = frame_size / pixel_bytes;
  if (pixel_bytes == kPixelBytes) {
    Interleave(from.data(), frames.size(), num_pixels, out.data(), stores);
  } else {
    InterleaveAny(from.data(), frames.size(), num_pixels, pixel_bytes,
                  out.data());
  }
}

void InterleaveFrames(std::span<const std::byte> frames, int64_t num_frames,
                      std::span<std::byte> out) {
  const auto count = static_cast<size_t>(num_frames);
  if (num_frames < 1 || frames.size() % count != 0) {
    throw InvalidArgument(
        fmt::format("InterleaveFrames: {} bytes are not {} frames",
                    frames.size(), num_frames));
  }
  const size_t frame_size = frames.size() / count;
  CheckSizes(count, frame_size, out.size(), kPixelBytes);
  std::array<const uint8_t*, kMaxInterleavedFrames> from;
  for (size_t k = 0; k < count; ++k) {
    from[k] = reinterpret_cast<const uint8_t*>(frames.data()) + k * frame_size;
  }
  Interleave(from.data(), count, frame_size / kPixelBytes,
             reinterpret_cast<uint8_t*>(out.data()), Stores::kCached);
}

}  // namespace replicant::env
