#include "learner/workloads/image_workload.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "core/base/error.h"

namespace replicant::learner {
namespace {

constexpr const char* kBatches = "batches";

}  // namespace

ImageWorkload::ImageWorkload(std::unique_ptr<replicator::Replicator> replicator,
                             const SyntheticImagesOptions& images,
                             graph::Precision precision)
    : precision_(precision), replicator_(std::move(replicator)) {
  // one process knows how far the images are, so that its checkpoint says it
  input_ = replicator_->MakeInput(
      [&](const replicator::InputContext& context) {
        auto pipeline = std::make_unique<SyntheticImages>(images, context);
        images_ = pipeline.get();
        return pipeline;
      },
      replicator::InputMode::kSingle);
}

std::map<std::string, std::string> ImageWorkload::State() const {
  if (images_ == nullptr) return {};
  return {{kBatches, std::to_string(images_->position())}};
}

void ImageWorkload::Restore(const std::map<std::string, std::string>& state) {
  const int64_t position = CountIn(state, kBatches);
  if (images_ != nullptr) images_->set_position(position);
}

int64_t ImageWorkload::CountIn(const std::map<std::string, std::string>& state,
                               const std::string& key) {
  const auto found = state.find(key);
  if (found == state.end()) {
    throw InvalidArgument(fmt::format("checkpoint: no {}", key));
  }
  const std::string& text = found->second;
  const char* end = text.data() + text.size();
  int64_t count = -1;
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || stop != end || count < 0) {
    throw InvalidArgument(fmt::format(
        "checkpoint: {}: want a whole number >= 0, got '{}'", key, text));
  }
  return count;
}

}  // namespace replicant::learner
