#include "learner/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"

namespace replicant::data {
namespace {

// Four lanes: the three colours of a pixel and one that is not used.
using Float4 [[gnu::vector_size(16)]] = float;

Float4 Load(const float* at) {
  Float4 value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint8_t ToByte(float value) {
  return static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
}

}  // namespace

void Resizer::Filter::Set(double low, double high, int64_t in, int64_t out) {
  const double scale = (high - low) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  firsts.clear();
  weights.clear();
  begins.assign(1, 0);
  for (int64_t i = 0; i < out; ++i) {
    const double center = low + (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto end =
        std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    const size_t begin = weights.size();
    double sum = 0.0;
    for (int64_t j = first; j < end; ++j) {
      const double distance = static_cast<double>(j) + 0.5 - center;
      const double weight = std::max(0.0, 1.0 - std::abs(distance) / support);
      weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (size_t j = begin; j < weights.size(); ++j) {
      weights[j] = static_cast<float>(weights[j] / sum);
    }
    firsts.push_back(first);
    begins.push_back(static_cast<int64_t>(weights.size()));
  }
}

void Resizer::Resize(const Image& image, const Box& box, const ImageSize& out,
                     std::span<uint8_t> rgb) {
  const ImageSize& in = image.size;
  REPLICANT_CHECK(box.left >= 0.0 && box.left < box.right &&
                      box.right <= static_cast<double>(in.width) &&
                      box.top >= 0.0 && box.top < box.bottom &&
                      box.bottom <= static_cast<double>(in.height),
                  "box outside an image of {}x{}", in.width, in.height);
  REPLICANT_CHECK_EQ(rgb.size(),
                     static_cast<size_t>(out.height * out.width * 3));
  across_.Set(box.left, box.right, in.width, out.width);
  down_.Set(box.top, box.bottom, in.height, out.height);
  // the columns that the filter across reads
  const int64_t first_column = across_.firsts.front();
  const int64_t end_column =
      across_.firsts.back() + across_.count(out.width - 1);
  const auto length = static_cast<size_t>((end_column - first_column) * 3);
  // Load() of the last pixel reads one more
  row_.resize(length + 1);
  for (int64_t y = 0; y < out.height; ++y) {
    std::fill(row_.begin(), row_.end(), 0.0F);
    const auto at = static_cast<size_t>(y);
    for (int64_t j = 0; j < down_.count(y); ++j) {
      const uint8_t* source =
          image.rgb.data() +
          ((down_.firsts[at] + j) * in.width + first_column) * 3;
      const float weight =
          down_.weights[static_cast<size_t>(down_.begins[at] + j)];
      float* sum = row_.data();
      for (size_t k = 0; k < length; ++k) {
        sum[k] += weight * static_cast<float>(source[k]);
      }
    }
    uint8_t* result = rgb.data() + y * out.width * 3;
    for (int64_t x = 0; x < out.width; ++x) {
      const auto pixel = static_cast<size_t>(x);
      const float* source =
          row_.data() + (across_.firsts[pixel] - first_column) * 3;
      const float* weight = across_.weights.data() + across_.begins[pixel];
      Float4 sum = {0.0F, 0.0F, 0.0F, 0.0F};
      for (int64_t j = 0; j < across_.count(x); ++j) {
        sum += Load(source + j * 3) * weight[j];
      }
      for (int64_t c = 0; c < 3; ++c) *result++ = ToByte(sum[c]);
    }
  }
}

}  // namespace replicant::data
