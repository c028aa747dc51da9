#include "learner/workloads/image_scores.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "learner/scores/inception_score.h"

namespace replicant::learner {
namespace {

// As in the papers.
constexpr int64_t kNumSplits = 10;
// Draws the images of the source and their views: the same in all runs, so that
// their scores compare.
constexpr uint64_t kSubsetSeed = 0;

}  // namespace

ImageScores::ImageScores(std::unique_ptr<FeatureExtractor> extractor,
                         std::shared_ptr<const data::ImageSource> source,
                         const Options& options)
    : extractor_(std::move(extractor)),
      source_(std::move(source)),
      options_(options),
      order_({source_->size()}, kSubsetSeed) {
  options_.num_images = std::min(options_.num_images, source_->size());
  if (extractor_) moments_.emplace(extractor_->feature_size());
}

bool ImageScores::ReadSource(size_t num_labels,
                             const std::function<bool()>& should_stop) {
  const auto reader = source_->MakeReader();
  const auto image_bytes =
      static_cast<size_t>(options_.side * options_.side * 3);
  std::vector<uint8_t> rgb;
  bool stops = false;
  while (labels_.size() < num_labels && num_read_ < options_.num_images) {
    stops = should_stop();
    if (stops) break;
    const int64_t index = order_.At(num_read_++);
    rgb.resize(rgb.size() + image_bytes);
    try {
      labels_.push_back(reader->Read(
          index,
          data::View(
              options_.augmentation,
              RandomStream(kSubsetSeed, fmt::format("evaluation/{}", index))),
          options_.side, std::span(rgb).last(image_bytes)));
    } catch (const data::DamagedImage& e) {
      spdlog::warn("left out of the evaluation: {}", e.what());
      rgb.resize(rgb.size() - image_bytes);
    }
  }
  if (!rgb.empty()) {
    ImageFeatures features;
    extractor_->Extract(rgb, options_.side, &features);
    moments_->Add(features.features);
  }
  if (num_read_ == options_.num_images && moments_->count() < 2) {
    throw IoError(fmt::format(
        "the evaluation needs two images or more; {} of {} can be read",
        moments_->count(), options_.num_images));
  }
  return !stops;
}

std::vector<std::pair<std::string, double>> ImageScores::Score(
    int64_t batch_size, const Generate& generate,
    const std::function<bool()>& should_stop) {
  ImageFeatures features;
  for (int64_t i = 0; i < options_.num_images; i += batch_size) {
    std::vector<int32_t> labels(
        static_cast<size_t>(std::min(batch_size, options_.num_images - i)));
    const bool stops =
        (extractor_ &&
         !ReadSource(static_cast<size_t>(i) + labels.size(), should_stop)) ||
        should_stop();
    if (stops) labels.clear();
    for (size_t k = 0; extractor_ && k < labels.size(); ++k) {
      labels[k] = labels_[(static_cast<size_t>(i) + k) % labels_.size()];
    }
    const std::vector<uint8_t> rgb = generate(i, labels);
    if (stops || rgb.empty()) return {};
    if (extractor_) extractor_->Extract(rgb, options_.side, &features);
  }
  if (!extractor_) return {};
  FeatureMoments generated(extractor_->feature_size());
  generated.Add(features.features);
  std::vector<std::pair<std::string, double>> scores = {
      {"evaluation_fid", FrechetDistance(*moments_, generated)}};
  if (extractor_->num_classes() > 0) {
    const InceptionScore score =
        ComputeInceptionScore(features.probabilities, extractor_->num_classes(),
                              std::min(kNumSplits, generated.count()));
    scores.emplace_back("evaluation_inception_score", score.mean);
  }
  scores.emplace_back("evaluation_images",
                      static_cast<double>(generated.count()));
  return scores;
}

}  // namespace replicant::learner
