#pragma once

#include <hwy/aligned_allocator.h>

#include <array>
#include <cstdint>
#include <vector>

#include "env/renderer/raycast/snapshot.h"

namespace replicant::env::raycast {

// Farther than any hit of a picture's rays.
inline constexpr float kMiss = 1e30f;

// Lanes of the longest vectors of 32 bits; rows of pixels are a multiple.
inline constexpr size_t kLargestVector = 16;

// A colour in one word: 8-bit channels 10 bits apart, so that the four samples
// of a pixel can be added.
inline constexpr int kChannelBits = 10;
inline constexpr uint32_t kChannelMask = 0x3FF;

// 0, 1, 2, ...
inline constexpr auto kLaneNumbers = [] {
  std::array<int32_t, 64> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int32_t>(i);
  }
  return numbers;
}();

// By mask of eight bits: the lanes whose bit is set, in order; the rest are 0.
inline constexpr auto kLanesOfBits = [] {
  std::array<std::array<uint8_t, 8>, 256> lanes{};
  for (size_t bits = 0; bits < lanes.size(); ++bits) {
    size_t count = 0;
    for (uint8_t lane = 0; lane < 8; ++lane) {
      if ((bits >> lane & 1) != 0) lanes[bits][count++] = lane;
    }
  }
  return lanes;
}();

// Memory for `size` lanes and a whole vector after the last one.
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

// The picture of the sky, painted where it is seen. It depends only on the
// camera's orientation and the picture's size and is reused from picture to
// picture.
struct Sky {
  const Texture* texture = nullptr;
  bool is_background = false;  // which may have changed by the next picture
  Float9 orientation{};
  Rays rays{};
  Fog fog;
  int height = 0, width = 0;
  Lanes<uint32_t> color;            // per pixel
  std::vector<uint8_t> is_painted;  // per kLargestVector pixels
};

// The pixels in which one primitive is seen: y << 16 | x, a bit per sample and,
// for triangles, the number. A pixel can appear once per sample.
struct PixelList {
  std::vector<int32_t> pixels, samples, triangles;
  size_t count = 0;
  // of a transparent primitive: colours, and their shares in what is drawn
  std::vector<uint32_t> shaded;
  std::vector<float> shares;

  // Makes room for `more` and a whole vector after them.
  void Reserve(size_t more) {
    const size_t need = count + more + Lanes<int32_t>::kPadding;
    if (need <= pixels.size()) return;
    pixels.resize(2 * need);
    samples.resize(2 * need);
    triangles.resize(2 * need);
  }
};

// A pixel whose samples lie in the haze.
struct HazePixel {
  size_t at;
  int32_t samples;  // a bit for each
  uint32_t color;   // packed
  float alpha;
};

// A triangle that a sample of a pixel sees.
struct TriangleHit {
  int32_t pixel, order, triangle, sample;
};

// The nearest hit of each sample of some rows: index of the primitive (-1:
// sky), 1 / depth and, for a primitive of triangles, the number of the
// triangle.
struct SeenSamples {
  PerSample<Lanes<float>> nearness;
  PerSample<Lanes<int32_t>> id, triangle;
};

// Working memory of one picture, reused for the next one. Pixel (x, y) is at
// y * stride + x.
struct Frame {
  // Rows that are traced together: few enough for the fastest cache.
  static constexpr int kBandRows = 4;
  size_t stride = 0;

  // primitives in the order in which they are traced
  std::vector<size_t> order;
  // of one band: seen directly, and in the mirror
  SeenSamples direct, mirrored;
  // of the whole picture, by primitive
  std::vector<PixelList> direct_lists, mirrored_lists;

  // the mirror's own colour, per pixel
  Lanes<uint32_t> mirror_color;
  // sum of the colours of a pixel's samples
  Lanes<uint32_t> sum;
  // colour per sample, and what it sees in the mirror, if samples are kept;
  // the reflection is black between pictures
  PerSample<Lanes<uint32_t>> color, reflection;
  // pixels in the haze
  std::vector<HazePixel> haze;
  // hits of some rays, in working order
  std::vector<TriangleHit> hits;
  // colours of the list that is being shaded
  std::vector<uint32_t> shaded;
};

}  // namespace replicant::env::raycast
