#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "learner/data/image_source.h"
#include "learner/data/view.h"

namespace replicant::data {

// Section `images`: the images of a workload.
struct ImagesConfig {
  std::string source = "synthetic";
  std::string train;
  std::string evaluation;
  int64_t num_train = 20'000;
  int64_t num_evaluation = 2'000;
  double variation = 0.5;
  AugmentationConfig augmentation;
  double evaluation_crop = 0.875;
  int threads = 1;  // of each process
  int batches_ahead = 2;

  static ImagesConfig Read(config::Reader& reader);
};

// The two sets of a run; no image is in both.
enum class Split { kTrain, kEvaluation };

// Makes the images of a split. Returns null for an evaluation without
// configured images. Throws IoError and ConfigError.
using MakeImageSource = std::function<std::shared_ptr<const ImageSource>(
    const ImagesConfig& config, Split split, uint64_t seed)>;

// The values of `images.source`, by name, except "synthetic", whose images are
// made in the step (learner/workloads/synthetic_images.h).
using ImageSources = std::map<std::string, MakeImageSource>;

// The image input of a workload.
struct ImageInput {
  ImagesConfig config;
  // Opens the source of a split; null for none. Empty: synthetic images.
  std::function<std::shared_ptr<const ImageSource>(Split split)> open;
  // False for a workload whose steps do not run: its images may be missing.
  bool is_read = true;
};

// image_folder and tar_shards.
ImageSources BuiltInImageSources();

}  // namespace replicant::data
