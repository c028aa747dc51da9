#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "env/camera.h"
#include "env/environment.h"
#include "env/time_step.h"
#include "env/video_writer.h"

namespace replicant::env {

// Films an environment into a video file in simulated time.
//
// Thread-safety: one thread at a time.
class Recorder {
 public:
  // `environment` must outlive the recorder. Throws as the constructors of
  // Camera and VideoWriter do.
  Recorder(Environment* environment, const CameraOptions& camera,
           const std::filesystem::path& file);

  // Adds the current state, the result of `step`. Throws as Camera::Render()
  // and VideoWriter::Write() do.
  void Record(const TimeStep& step);

  // Waits until the file is complete. Throws IoError. No step may follow.
  void Finish() { writer_.Finish(); }

 private:
  Environment& environment_;
  Camera camera_;
  VideoWriter writer_;
  std::vector<uint8_t> frame_;
};

}  // namespace replicant::env
