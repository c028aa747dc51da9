#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/config/reader.h"
#include "env/camera.h"
#include "env/task_config.h"

namespace replicant::evaluation {

// Section `evaluation.video`: videos of evaluation episodes.
struct VideoConfig {
  bool enabled = true;
  double interval_s = 300.0;
  std::string camera;  // empty: the camera of the agent's pixels
  int height = 240;
  int width = 320;

  static VideoConfig Read(config::Reader& reader);
};

// Section `evaluation`: how often and how the policy is evaluated, without
// exploration noise.
struct EvaluationConfig {
  bool enabled = true;
  double interval_s = 30.0;
  std::optional<int64_t> interval_frames;  // given: counts instead of time
  int64_t episodes = 10;
  int64_t seed = 1000;                 // of the environment's first states
  int64_t max_episode_steps = 20'000;  // control steps
  std::optional<double> stop_at_return;
  VideoConfig video;

  static EvaluationConfig Read(config::Reader& reader);

  // Whether a policy with this mean return ends the training.
  bool IsGoodEnough(double mean_return) const {
    return stop_at_return.has_value() && mean_return >= *stop_at_return;
  }
  // The cameras of the video, side by side: the agent's renderer and views, or
  // the section's own view, in the section's size.
  std::vector<env::CameraOptions> VideoCameras(
      const env::TaskConfig& task) const;
};

}  // namespace replicant::evaluation
