// Frames are interleaved five pixels at a time: 15 of the 16 bytes of a vector
// from each frame. Five pixels of K frames are 15 K bytes of the image, in
// ceil(15 K / 16) vectors. One byte shuffle per frame moves the frame's bytes
// into their places in such a vector and leaves zeros elsewhere; the vector is
// the OR of its K shuffled frames. The shuffles are the same for every five
// pixels: a table computed at compile time, which stays in registers for few
// frames. The last vector reaches into the next five pixels, which overwrite
// it; so the end of the image is copied pixel by pixel.
#include "env/interleave.h"

#include <fmt/format.h>
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
constexpr size_t kGroupPixels = 5;
constexpr hn::FixedTag<uint8_t, kVectorBytes> kTag{};

// The shuffles for kGroupPixels pixels of kFrames frames.
template <size_t kFrames>
struct ShufflePlan {
  static constexpr size_t kGroupBytes = kGroupPixels * kPixelBytes * kFrames;
  static constexpr size_t kVectors =
      (kGroupBytes + kVectorBytes - 1) / kVectorBytes;

  // Byte b of vector v is byte take[v * kFrames + k][b] of frame k's vector;
  // 0x80 takes none.
  alignas(kVectorBytes)
      std::array<std::array<uint8_t, kVectorBytes>, kVectors * kFrames> take{};

  constexpr ShufflePlan() {
    for (size_t v = 0; v < kVectors; ++v) {
      for (size_t b = 0; b < kVectorBytes; ++b) {
        const size_t at = v * kVectorBytes + b;
        const size_t pixel = at / (kPixelBytes * kFrames);
        const size_t owner = at / kPixelBytes % kFrames;
        for (size_t k = 0; k < kFrames; ++k) {
          const bool is_here = k == owner && pixel < kGroupPixels;
          take[v * kFrames + k][b] = static_cast<uint8_t>(
              is_here ? pixel * kPixelBytes + at % kPixelBytes : 0x80);
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
template <size_t kFrames>
void InterleaveGroups(const uint8_t* const* frames, size_t num_pixels,
                      uint8_t* out) {
  using Plan = ShufflePlan<kFrames>;
  using V = hn::Vec<decltype(kTag)>;
  static constexpr Plan kPlan;
  V take[Plan::kVectors * kFrames];
  for (size_t i = 0; i < kPlan.take.size(); ++i) {
    take[i] = hn::Load(kTag, kPlan.take[i].data());
  }
  const uint8_t* from[kFrames];
  std::copy_n(frames, kFrames, from);
  size_t p = 0;
  // a vector is read and written beyond its group
  for (; p + kGroupPixels + kVectorBytes <= num_pixels; p += kGroupPixels) {
    HWY_UNROLL(8) for (size_t v = 0; v < Plan::kVectors; ++v) {
      V sum = hn::Zero(kTag);
      HWY_UNROLL(8) for (size_t k = 0; k < kFrames; ++k) {
        const V pixels = hn::LoadU(kTag, from[k] + p * kPixelBytes);
        sum =
            hn::Or(sum, hn::TableLookupBytesOr0(pixels, take[v * kFrames + k]));
      }
      hn::StoreU(sum, kTag, out + v * kVectorBytes);
    }
    out += Plan::kGroupBytes;
  }
  for (const uint8_t*& frame : from) frame += p * kPixelBytes;
  InterleavePixels(from, kFrames, num_pixels - p, out);
}

// Frames of checked sizes.
void Interleave(const uint8_t* const* frames, size_t num_frames,
                size_t num_pixels, uint8_t* out) {
  switch (num_frames) {
    case 1:
      std::memcpy(out, frames[0], num_pixels * kPixelBytes);
      return;
    case 2:
      return InterleaveGroups<2>(frames, num_pixels, out);
    case 3:
      return InterleaveGroups<3>(frames, num_pixels, out);
    case 4:
      return InterleaveGroups<4>(frames, num_pixels, out);
    case 5:
      return InterleaveGroups<5>(frames, num_pixels, out);
    case 6:
      return InterleaveGroups<6>(frames, num_pixels, out);
    case 7:
      return InterleaveGroups<7>(frames, num_pixels, out);
    case 8:
      return InterleaveGroups<8>(frames, num_pixels, out);
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
                      std::span<uint8_t> out, size_t pixel_bytes) {
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
    Interleave(from.data(), frames.size(), num_pixels, out.data());
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
             reinterpret_cast<uint8_t*>(out.data()));
}

}  // namespace replicant::env
