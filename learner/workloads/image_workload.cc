#include "learner/workloads/image_workload.h"

#include <fmt/format.h>

#include <algorithm>
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
  // one process makes all images, so that its checkpoint knows their position
  input_ = replicator_->MakeInput(
      [&](const replicator::InputContext& context) {
        auto pipeline = std::make_unique<SyntheticImages>(images, context);
        images_[context.group_id] = pipeline.get();
        num_groups_ = context.num_groups;
        return pipeline;
      },
      replicator::InputMode::kSingle);
}

std::map<std::string, std::string> ImageWorkload::State() const {
  if (images_.empty()) return {};
  int64_t sum = 0;
  for (const auto& [group, images] : images_) sum += images->position();
  // assume that groups of other processes have taken as many
  const auto num_here = static_cast<int64_t>(images_.size());
  return {{kBatches, std::to_string(sum * num_groups_ / num_here)}};
}

void ImageWorkload::Restore(const std::map<std::string, std::string>& state) {
  const int64_t position = CountIn(state, kBatches);
  for (const auto& [group, images] : images_) {
    images->set_position((position + num_groups_ - 1 - group) / num_groups_);
  }
}

void ImageWorkload::Batches::SetPaused(bool is_paused) {
  for (const auto& [group, images] : workload_.images_) {
    images->SetPaused(is_paused);
  }
}

bool ImageWorkload::Batches::IsDrained() const {
  return !workload_.replicator_->HasResults() &&
         std::ranges::all_of(workload_.images_, [](const auto& entry) {
           return entry.second->is_drained();
         });
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
