#include "learner/data/view.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace replicant::data {
namespace {

constexpr int kMaxTries = 10;
constexpr double kMaxRatio = 4.0 / 3.0;

Box Centered(const ImageSize& size, double width, double height) {
  const double left = (static_cast<double>(size.width) - width) / 2.0;
  const double top = (static_cast<double>(size.height) - height) / 2.0;
  return {
      .left = left, .top = top, .right = left + width, .bottom = top + height};
}

Box RandomResized(const ImageSize& size, double min_area,
                  RandomStream& random) {
  const auto area = static_cast<double>(size.height * size.width);
  for (int i = 0; i < kMaxTries; ++i) {
    const double target = area * random.Uniform(min_area, 1.0);
    const double ratio =
        std::exp(random.Uniform(-std::log(kMaxRatio), std::log(kMaxRatio)));
    const auto width =
        static_cast<int64_t>(std::lround(std::sqrt(target * ratio)));
    const auto height =
        static_cast<int64_t>(std::lround(std::sqrt(target / ratio)));
    if (width < 1 || height < 1 || width > size.width || height > size.height) {
      continue;
    }
    const auto left =
        static_cast<double>(random.UniformInt(size.width - width + 1));
    const auto top =
        static_cast<double>(random.UniformInt(size.height - height + 1));
    return {.left = left,
            .top = top,
            .right = left + static_cast<double>(width),
            .bottom = top + static_cast<double>(height)};
  }
  // the largest part in the centre of an allowed ratio
  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  return Centered(size, std::min(width, height * kMaxRatio),
                  std::min(height, width * kMaxRatio));
}

void Flip(int64_t side, std::span<uint8_t> rgb) {
  for (int64_t y = 0; y < side; ++y) {
    uint8_t* row = rgb.data() + y * side * 3;
    for (int64_t x = 0; x < side / 2; ++x) {
      std::swap_ranges(row + x * 3, row + x * 3 + 3, row + (side - 1 - x) * 3);
    }
  }
}

// ITU-R 601, as Pillow's conversion to grey.
float Grey(const uint8_t* pixel) {
  return 0.299F * static_cast<float>(pixel[0]) +
         0.587F * static_cast<float>(pixel[1]) +
         0.114F * static_cast<float>(pixel[2]);
}

// Brightness, then contrast around the mean grey, then saturation.
void Jitter(double strength, RandomStream& random, std::span<uint8_t> rgb) {
  std::array<float, 3> factors;
  for (float& factor : factors) {
    factor = static_cast<float>(random.Uniform(1.0 - strength, 1.0 + strength));
  }
  const auto [brightness, contrast, saturation] = factors;
  double sum = 0.0;
  for (size_t i = 0; i < rgb.size(); i += 3) sum += Grey(&rgb[i]);
  const size_t num_pixels = rgb.size() / 3;
  const float mean =
      brightness * static_cast<float>(sum / static_cast<double>(num_pixels));
  for (size_t i = 0; i < rgb.size(); i += 3) {
    const float grey = mean + contrast * (brightness * Grey(&rgb[i]) - mean);
    for (size_t c = 0; c < 3; ++c) {
      const float value =
          mean +
          contrast * (brightness * static_cast<float>(rgb[i + c]) - mean);
      rgb[i + c] = static_cast<uint8_t>(
          std::clamp(grey + saturation * (value - grey) + 0.5F, 0.0F, 255.0F));
    }
  }
}

}  // namespace

AugmentationConfig AugmentationConfig::Read(config::Reader& reader) {
  AugmentationConfig c;
  reader.Field(
      "crop", &c.crop,
      {{"random_resized", Crop::kRandomResized}, {"center", Crop::kCenter}},
      "part of an image that training sees. random_resized: one of "
      "random area, place and ratio between 3/4 and 4/3; center: the "
      "largest square in the centre. Images of the source rendered are seen "
      "whole");
  reader.Field("min_area", &c.min_area, {0.001, 1.0},
               "smallest area of a random_resized crop, as a share of the "
               "image");
  reader.Field("has_flip", &c.has_flip,
               "whether each training image is mirrored with probability 1/2");
  reader.Field("color_jitter", &c.color_jitter, {0.0, 1.0},
               "largest change of brightness, contrast and saturation, as a "
               "share; 0 for none");
  return c;
}

Box View::ChooseBox(const ImageSize& size) {
  if (random_ && config_.crop == Crop::kRandomResized) {
    return RandomResized(size, config_.min_area, *random_);
  }
  if (!share_) {
    return Centered(size, static_cast<double>(size.width),
                    static_cast<double>(size.height));
  }
  const double side =
      *share_ * static_cast<double>(std::min(size.height, size.width));
  return Centered(size, side, side);
}

void View::Finish(int64_t side, std::span<uint8_t> rgb) {
  if (!random_) return;
  if (config_.has_flip && random_->Uniform() < 0.5) Flip(side, rgb);
  if (config_.color_jitter > 0.0) Jitter(config_.color_jitter, *random_, rgb);
}

}  // namespace replicant::data
