#include "env/recorder.h"

namespace replicant::env {

Recorder::Recorder(Environment* environment, const CameraOptions& camera,
                   const std::filesystem::path& file)
    : environment_(*environment),
      camera_(environment_.physics(), camera),
      writer_(file, camera_.height(), camera_.width(),
              1.0 / environment_.control_timestep_s()),
      frame_(camera_.size_bytes()) {}

void Recorder::Record(const TimeStep& step) {
  if (step.IsFirst() && environment_.ResetChangesAssets()) {
    camera_.ReloadAssets(environment_.physics());
  }
  camera_.Render(environment_.mutable_physics(), frame_);
  writer_.Write(frame_);
}

}  // namespace replicant::env
