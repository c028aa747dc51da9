#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/config/reader.h"
#include "base/images/image.h"
#include "base/rng.h"

namespace replicant::data {

enum class Crop { kRandomResized, kCenter };

// Section `images.augmentation`: random changes of training images.
struct AugmentationConfig {
  Crop crop = Crop::kRandomResized;
  double min_area = 0.08;     // share of the image
  bool has_flip = true;       // mirrored with probability 1/2
  double color_jitter = 0.0;  // largest change of a factor

  static AugmentationConfig Read(config::Reader& reader);
};

// The visible part of an image, and its changes. In training it is random: a
// crop of random area and ratio (arXiv:1409.4842, section 6, as torchvision's
// RandomResizedCrop), a flip, and factors of brightness, contrast and
// saturation in [1 - color_jitter, 1 + color_jitter]. An evaluation sees the
// square in the centre, and a check of the data all of the image.
//
// Thread-safety: one thread at a time.
class View {
 public:
  // A view of training, a function of `random`.
  View(const AugmentationConfig& config, const RandomStream& random)
      : config_(config), random_(random) {}
  // The square in the centre; side `share` of the image's shorter side.
  explicit View(double share) : share_(share) {}
  // All of the image, whatever its ratio.
  static View Whole() { return View(std::nullopt); }

  // Chooses the part of an image of this size.
  Box ChooseBox(const ImageSize& size);
  // Flips and colours the resized part, u8 [side, side, 3].
  void Finish(int64_t side, std::span<uint8_t> rgb);

 private:
  explicit View(std::nullopt_t share) : share_(share) {}

  AugmentationConfig config_ = {};
  std::optional<RandomStream> random_;
  std::optional<double> share_ = 1.0;
};

}  // namespace replicant::data
