#include "env/distractions.h"

#include <fmt/format.h>

#include <utility>

namespace replicant::env {

DistractionConfig DistractionConfig::Read(config::Reader& reader) {
  DistractionConfig c;
  reader.Section("camera", &c.camera, "cameras that move at random");
  reader.Section("background", &c.background, "images in the place of the sky");
  return c;
}

Distractions::Distractions(const DistractionConfig& config,
                           std::shared_ptr<const Backgrounds> backgrounds,
                           const Physics& physics,
                           const std::vector<int>& cameras,
                           const RandomStream& random)
    : config_(config),
      backgrounds_(std::move(backgrounds)),
      stream_(random),
      shown_(cameras.size()) {
  if (!config_.camera.IsAny()) return;
  for (const int camera : cameras) {
    walks_.emplace_back(config_.camera, physics, camera);
  }
}

void Distractions::Begin(const Physics& physics, int64_t episode) {
  const RandomStream stream =
      stream_.Substream(fmt::format("episode-{}", episode));
  for (size_t i = 0; i < walks_.size(); ++i) {
    walks_[i].Begin(physics, stream.Substream(fmt::format("camera-{}", i)));
  }
  if (backgrounds_ == nullptr) return;
  RandomStream random = stream.Substream("background");
  video_ = random.UniformInt(backgrounds_->num_videos());
  image_ = random.UniformInt(backgrounds_->num_images(video_));
  direction_ = random.Uniform() < 0.5 ? -1 : 1;
}

void Distractions::Step() {
  for (CameraWalk& walk : walks_) walk.Step();
  if (backgrounds_ == nullptr || !config_.background.is_dynamic) return;
  // the video turns back at its ends; its last image is seen twice, as in the
  // suite
  const int64_t last = backgrounds_->num_images(video_) - 1;
  image_ += direction_;
  if (image_ <= 0) {
    image_ = 0;
    direction_ = 1;
  }
  if (image_ > last) {
    image_ = last;
    direction_ = -1;
  }
}

CameraView Distractions::View(size_t index, const Physics& physics, int height,
                              int width) {
  CameraView view;
  if (!walks_.empty()) view.pose = walks_[index].Pose(physics);
  if (backgrounds_ != nullptr) {
    shown_[index] = backgrounds_->Get(video_, image_, height, width);
    view.background = *shown_[index];
  }
  return view;
}

}  // namespace replicant::env
