#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/config/reader.h"
#include "base/rng.h"
#include "env/backgrounds.h"
#include "env/camera.h"
#include "env/camera_walk.h"

namespace replicant::env {

// Section `task.distractions`: what changes in the pictures of a task and not
// in the task, as in the Distracting Control Suite (arXiv:2101.02722). Its
// colours are a case of `task.randomization`.
struct DistractionConfig {
  CameraWalkConfig camera;
  BackgroundConfig background;

  bool IsAny() const { return camera.IsAny() || background.is_enabled; }
  static DistractionConfig Read(config::Reader& reader);
};

// The distractions of one environment: each camera walks by itself, and all
// have images of one video.
//
// Every draw of episode k comes from substream "episode-k", so that a resumed
// run repeats it.
//
// Thread-safety: one thread at a time; objects may share their backgrounds.
class Distractions {
 public:
  // `cameras` are of the model of `physics`; `backgrounds` are null unless the
  // configuration has them. Throws as CameraWalk's constructor does.
  Distractions(const DistractionConfig& config,
               std::shared_ptr<const Backgrounds> backgrounds,
               const Physics& physics, const std::vector<int>& cameras,
               const RandomStream& random);

  // Episode `episode` begins in the present state.
  void Begin(const Physics& physics, int64_t episode);
  // The agent makes a step.
  void Step();

  // What camera `index`, of those given, shows in the present state as a
  // picture of this size. Its background is valid until the next call for this
  // camera. Throws as Backgrounds::Get() does.
  CameraView View(size_t index, const Physics& physics, int height, int width);

 private:
  const DistractionConfig config_;
  const std::shared_ptr<const Backgrounds> backgrounds_;
  const RandomStream stream_;
  std::vector<CameraWalk> walks_;  // empty: cameras stand still

  // of the episode
  int64_t video_ = 0, image_ = 0, direction_ = 1;
  std::vector<Backgrounds::Picture> shown_;  // by camera
};

}  // namespace replicant::env
