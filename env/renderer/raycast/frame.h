#pragma once

#include <hwy/aligned_allocator.h>

#include <array>
#include <cstdint>
#include <vector>

#include "env/renderer/raycast/snapshot.h"

namespace replicant::env::raycast {

// Samples per pixel, where llvmpipe has them: distances from the left and from
// the top edge of the pixel. (OpenGL counts rows from the bottom.)
inline constexpr int kNumSamples = 4;
inline constexpr int kAllSamples = 15;  // a bit for each
inline constexpr std::array<float, kNumSamples> kSampleX = {.375f, .875f, .125f,
                                                            .625f};
inline constexpr std::array<float, kNumSamples> kSampleY = {.875f, .625f, .375f,
                                                            .125f};

// No ray of a picture hits as far away as this.
inline constexpr float kMiss = 1e30f;

// A colour in one word: 8-bit channels 10 bits apart, so that the four samples
// of a pixel can be added.
inline constexpr int kChannelBits = 10;
inline constexpr uint32_t kChannelMask = 0x3FF;

// Memory for `size` lanes with room for a whole vector behind the last one.
template <typename T>
class Lanes {
 public:
  static constexpr size_t kPadding = 64;
  void Resize(size_t size) {
    if (size == size_) return;
    data_ = hwy::AllocateAligned<T>(size + kPadding);
    for (size_t i = 0; i < size + kPadding; ++i) data_[i] = T{};
    size_ = size;
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  hwy::AlignedFreeUniquePtr<T[]> data_;
  size_t size_ = 0;
};

template <typename T>
using PerSample = std::array<T, kNumSamples>;

// What the sky looks like from here: a function of the camera's orientation
// and the picture's size alone, kept from picture to picture.
struct Sky {
  const Texture* texture = nullptr;
  Float9 orientation{};
  Rays rays{};
  int height = 0, width = 0;
  float distance = 0;
  Lanes<uint32_t> color;          // per pixel
  PerSample<Lanes<float>> depth;  // where the ray meets it
};

// Working memory of one picture, used again for the next. Pixel (x, y) is at
// y * stride + x.
struct Frame {
  size_t stride = 0;

  // the nearest primitive of every sample: its depth and index, -1 for the sky
  PerSample<Lanes<float>> depth;
  PerSample<Lanes<int32_t>> id;
  // the same behind the mirror
  PerSample<Lanes<float>> mirrored_depth;
  PerSample<Lanes<int32_t>> mirrored_id;
  // the mirror's own colour, per pixel
  Lanes<uint32_t> mirror_color;

  // sum of the colours of a pixel's samples
  Lanes<uint32_t> sum;
  // colour per sample, for scenes with transparent primitives
  PerSample<Lanes<uint32_t>> color;

  // pixels that one primitive covers: y << 16 | x, a bit per sample, the
  // shaded colour; a pixel can be there once per sample
  Lanes<int32_t> pixels;
  Lanes<int32_t> samples;
  Lanes<uint32_t> shaded;
};

}  // namespace replicant::env::raycast
