#include "evaluation/evaluation_config.h"

namespace replicant::evaluation {

VideoConfig VideoConfig::Read(config::Reader& reader) {
  VideoConfig c;
  reader.Field(
      "enabled", &c.enabled,
      "whether to record videos: one per interval_s, and one at the end "
      "of the run");
  reader.Field("interval_s", &c.interval_s, {0.0, 1e9},
               "minimum seconds between two videos, and before the first");
  reader.Field(
      "camera", &c.camera,
      "name or number of a camera of the model, -1 for the free "
      "camera; empty: the cameras of the agent's pixels, side by side");
  reader.Field("height", &c.height, {2, 4096}, "height of the video in pixels");
  reader.Field("width", &c.width, {2, 4096},
               "width of the video in pixels, of each camera");
  return c;
}

EvaluationConfig EvaluationConfig::Read(config::Reader& reader) {
  EvaluationConfig c;
  reader.Field("enabled", &c.enabled,
               "whether the policy is evaluated while it learns");
  reader.Field("interval_s", &c.interval_s, {0.1, 1e6},
               "seconds between two evaluations");
  reader.Field("interval_frames", &c.interval_frames, {1, int64_t{1} << 53},
               "environment frames between two evaluations, instead of "
               "interval_s; null: by time");
  reader.Field("episodes", &c.episodes, {1, 10'000},
               "number of episodes of one evaluation");
  reader.Field("seed", &c.seed, {0, 1'000'000'000},
               "seed of the initial states, the same in every evaluation");
  reader.Field("max_episode_steps", &c.max_episode_steps, {1, 1'000'000'000},
               "control steps after which an episode is cut off and ends its "
               "evaluation, with a warning; an environment without a time "
               "limit may have no end");
  reader.Field(
      "stop_at_return", &c.stop_at_return, {-1e12, 1e12},
      "mean return of an evaluation at which the run ends; null: no limit");
  reader.Section("video", &c.video, "videos of evaluation episodes");
  if (c.stop_at_return.has_value() && !c.enabled) {
    reader.Error("stop_at_return", "needs evaluations: enabled is false");
  }
  return c;
}

std::vector<env::CameraOptions> EvaluationConfig::VideoCameras(
    const env::TaskConfig& task) const {
  std::vector<env::CameraOptions> cameras = task.pixels.Cameras();
  if (!video.camera.empty()) {
    cameras.resize(1);
    cameras[0].camera = video.camera;
  }
  for (env::CameraOptions& camera : cameras) {
    camera.height = video.height;
    camera.width = video.width;
  }
  return cameras;
}

}  // namespace replicant::evaluation
