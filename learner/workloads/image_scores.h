#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "learner/data/epoch_order.h"
#include "learner/data/image_source.h"
#include "learner/scores/feature_moments.h"
#include "learner/workloads/feature_extractor.h"

namespace replicant::learner {

// Compares generated images with the images of a source: FID, and also the
// Inception Score if the feature network classifies.
//
// Thread-safety: one thread at a time.
class ImageScores {
 public:
  struct Options {
    int64_t num_images = 5000;  // of the source, and as many generated ones
    int64_t side = 32;          // of the images, in pixels
    // the view of the source's images, as in training
    data::AugmentationConfig augmentation = {};
  };
  // Uses a random subset of the source's images, in random order, the same in
  // every run, and so are their views; all of them if it has fewer. Without an
  // extractor, Score() only calls `generate`: for processes that make images
  // together with the process that has the extractor.
  ImageScores(std::unique_ptr<FeatureExtractor> extractor,
              std::shared_ptr<const data::ImageSource> source,
              const Options& options);

  // Makes images [n, side, side, 3] u8 of the classes `labels`, [n]; `first` is
  // the number of the first image. Returns none to end the evaluation. No
  // labels end it in all processes.
  using Generate = std::function<std::vector<uint8_t>(
      int64_t first, std::span<const int32_t> labels)>;
  // Calls `generate` for the classes of the source's images, at most
  // `batch_size` at a time. The first evaluation reads these images between the
  // calls, since other processes wait in `generate`. Returns evaluation_fid,
  // evaluation_inception_score and evaluation_images; nothing if `generate`
  // ends it, or once `should_stop` returns true, which is asked before each
  // image of the source and each call of `generate`. Leaves out damaged images.
  // Throws IoError if fewer than two of the source's images can be read, or the
  // system cannot read one.
  std::vector<std::pair<std::string, double>> Score(
      int64_t batch_size, const Generate& generate,
      const std::function<bool()>& should_stop = [] { return false; });

 private:
  // Reads on in the source until it has `num_labels` classes or all of them.
  // Returns false if it stopped with `should_stop`.
  bool ReadSource(size_t num_labels, const std::function<bool()>& should_stop);

  std::unique_ptr<FeatureExtractor> extractor_;
  std::shared_ptr<const data::ImageSource> source_;
  Options options_;
  // of the source's images that have been read
  std::optional<FeatureMoments> moments_;
  std::vector<int32_t> labels_;
  // files are often in the order of their classes: one permutation of all gives
  // the subset, and each split of the Inception Score, every class
  data::EpochOrder order_;
  int64_t num_read_ = 0;
};

}  // namespace replicant::learner
