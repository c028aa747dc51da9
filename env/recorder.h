#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "env/camera.h"
#include "env/environment.h"
#include "env/time_step.h"
#include "env/video_writer.h"

namespace replicant::env {

// Films an environment into a video file in simulated time, with one camera or
// several side by side.
//
// Thread-safety: one thread at a time.
class Recorder {
 public:
  // `environment` must outlive the recorder. Throws InvalidArgument unless
  // there is a camera and all have one height, and as the constructors of
  // Camera and VideoWriter do.
  Recorder(Environment* environment, const std::vector<CameraOptions>& cameras,
           const std::filesystem::path& file);

  // Adds the current state, the result of `step`. Throws as Camera::Render()
  // and VideoWriter::Write() do.
  void Record(const TimeStep& step);

  // Waits until the file is complete. Throws IoError. No step may follow.
  void Finish() { writer_.Finish(); }

 private:
  Environment& environment_;
  // a camera, and its picture
  struct View {
    Camera camera;
    std::vector<uint8_t> picture;
  };
  static std::vector<View> MakeViews(const Physics& physics,
                                     const std::vector<CameraOptions>& cameras);

  int width_;
  std::vector<View> views_;
  VideoWriter writer_;
  std::vector<uint8_t> frame_;
};

}  // namespace replicant::env
