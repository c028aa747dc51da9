#include "base/images/resize.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/images/resize_kernels.h"

namespace replicant::data {

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
  const int64_t length = (end_column - first_column) * 3;
  // both buffers are longer than their pixels by one element (SumPixels)
  row_.resize(static_cast<size_t>(length) + 1);
  bytes_.resize(static_cast<size_t>(out.width * 3) + 1);
  const internal::RowFilter filter{.firsts = across_.firsts.data(),
                                   .ends = across_.begins.data(),
                                   .weights = across_.weights.data(),
                                   .origin = first_column};
  for (int64_t y = 0; y < out.height; ++y) {
    const auto at = static_cast<size_t>(y);
    internal::SumRows(
        image.rgb.data() + (down_.firsts[at] * in.width + first_column) * 3,
        in.width * 3, down_.weights.data() + down_.begins[at], down_.count(y),
        length, row_.data());
    internal::SumPixels(row_.data(), filter, out.width, bytes_.data());
    std::copy_n(bytes_.data(), out.width * 3, rgb.data() + y * out.width * 3);
  }
}

}  // namespace replicant::data
