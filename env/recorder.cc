#include "env/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace replicant::env {
namespace {

constexpr size_t kRgbBytes = 3;

// Columns of all pictures side by side.
int TotalWidth(const std::vector<CameraOptions>& cameras) {
  int width = 0;
  for (const CameraOptions& camera : cameras) {
    if (camera.height != cameras[0].height) {
      throw InvalidArgument(
          fmt::format("recorder: cameras of {} and {} rows; want one height",
                      cameras[0].height, camera.height));
    }
    width += camera.width;
  }
  if (cameras.empty()) throw InvalidArgument("recorder: no camera");
  return width;
}

}  // namespace

std::vector<Recorder::View> Recorder::MakeViews(
    const Physics& physics, const std::vector<CameraOptions>& cameras) {
  std::vector<View> views;
  for (const CameraOptions& options : cameras) {
    Camera camera(physics, options);
    const size_t size = camera.size_bytes();
    views.push_back({std::move(camera), std::vector<uint8_t>(size)});
  }
  return views;
}

Recorder::Recorder(Environment* environment,
                   const std::vector<CameraOptions>& cameras,
                   const std::filesystem::path& file)
    : environment_(*environment),
      width_(TotalWidth(cameras)),
      views_(MakeViews(environment_.physics(), cameras)),
      writer_(file, cameras[0].height, width_,
              1.0 / environment_.control_timestep_s()),
      frame_(kRgbBytes * static_cast<size_t>(width_) *
             static_cast<size_t>(cameras[0].height)) {}

void Recorder::Record(const TimeStep& step) {
  const bool is_reloaded = step.IsFirst() && environment_.ResetChangesAssets();
  size_t column = 0;
  for (View& view : views_) {
    if (is_reloaded) view.camera.ReloadAssets(environment_.physics());
    view.camera.Render(environment_.mutable_physics(), view.picture);
    const size_t row_bytes =
        kRgbBytes * static_cast<size_t>(view.camera.width());
    for (int row = 0; row < view.camera.height(); ++row) {
      const auto r = static_cast<size_t>(row);
      std::copy_n(
          view.picture.data() + r * row_bytes, row_bytes,
          frame_.data() + r * kRgbBytes * static_cast<size_t>(width_) + column);
    }
    column += row_bytes;
  }
  writer_.Write(frame_);
}

}  // namespace replicant::env
