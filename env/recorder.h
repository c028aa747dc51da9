#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "env/camera.h"
#include "env/environment.h"
#include "env/time_step.h"
#include "env/video_writer.h"

namespace replicant::env {

// Films an environment into a video file, as fast as it happens: a step shows
// for its simulated time.
//
// Thread-safety: one thread at a time.
class Recorder {
 public:
  // `environment` outlives the recorder. Throws what the constructors of Camera
  // and VideoWriter throw.
  Recorder(Environment* environment, const CameraOptions& camera,
           const std::filesystem::path& file);

  // Adds the present state, which `step` led to. Throws what Camera::Render()
  // and VideoWriter::Write() throw.
  void Record(const TimeStep& step);

  // Waits until the file is whole. Throws IoError. No step may follow.
  void Finish() { writer_.Finish(); }

 private:
  Environment& environment_;
  Camera camera_;
  VideoWriter writer_;
  std::vector<uint8_t> frame_;
};

}  // namespace replicant::env
