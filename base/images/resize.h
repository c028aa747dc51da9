#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/images/image.h"

namespace replicant::data {

// Resizes a part of an image with a triangle filter whose support grows with
// the reduction (antialiased bilinear). The result equals Pillow's resize(size,
// BILINEAR, box) within 1 grey level: Pillow rounds the intermediate image to
// bytes, this class keeps it in f32.
//
// Thread-safety: one thread at a time; buffers are kept between calls.
class Resizer {
 public:
  // Writes `box` of `image` to `rgb`, u8 [out.height, out.width, 3]. The filter
  // reads pixels outside the box, but none outside the image. The box must lie
  // in the image and have an area, and `rgb` must have the size (checked).
  void Resize(const Image& image, const Box& box, const ImageSize& out,
              std::span<uint8_t> rgb);

 private:
  // The filter of one axis: output i is the sum of weights[begins[i] ...
  // begins[i + 1]) times the inputs from firsts[i] on.
  struct Filter {
    std::vector<int64_t> firsts, begins;
    std::vector<float> weights;

    void Set(double low, double high, int64_t in, int64_t out);
    int64_t count(int64_t i) const {
      return begins[static_cast<size_t>(i) + 1] -
             begins[static_cast<size_t>(i)];
    }
  };

  Filter across_, down_;
  std::vector<float> row_;      // an output row, not yet resized across
  std::vector<uint8_t> bytes_;  // the same, resized
};

}  // namespace replicant::data
