#include "env/camera.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "env/renderer/scene.h"

namespace replicant::env {
namespace {

// "-1 (free), 0 side, 1 back".
std::string CameraList(const mjModel& model) {
  std::string list = "-1 (free)";
  for (int i = 0; i < model.ncam; ++i) {
    const char* name = mj_id2name(&model, mjOBJ_CAMERA, i);
    list += fmt::format(", {}", i);
    if (name != nullptr) list += fmt::format(" {}", name);
  }
  return list;
}

}  // namespace

int FindCamera(const Physics& physics, const std::string& camera) {
  const mjModel& model = physics.model();
  // most models have no camera: the default is then the free one
  if (model.ncam == 0 && camera == CameraOptions{}.camera) return -1;
  int id = mj_name2id(&model, mjOBJ_CAMERA, camera.c_str());
  if (id >= 0) return id;
  const char* end = camera.data() + camera.size();
  const auto parsed = std::from_chars(camera.data(), end, id);
  if (parsed.ec != std::errc{} || parsed.ptr != end || id < -1 ||
      id >= model.ncam) {
    throw InvalidArgument(fmt::format("{}: no camera '{}'; allowed: {}",
                                      physics.name(), camera,
                                      CameraList(model)));
  }
  return id;
}

Camera::Camera(const Physics& physics, const CameraOptions& options)
    : id_(FindCamera(physics, options.camera)),
      height_(options.height),
      width_(options.width) {
  CheckImageSize(height_, width_);
  renderer_ = MakeRenderer(physics.model(), options.renderer);
}

Camera::Camera(const Camera& sibling, const Physics& physics)
    : id_(sibling.id_),
      height_(sibling.height_),
      width_(sibling.width_),
      renderer_(sibling.renderer_->MakeSibling(physics.model())) {}

Camera::Camera(const Camera& sibling, const Physics& physics,
               const CameraOptions& options)
    : id_(FindCamera(physics, options.camera)),
      height_(options.height),
      width_(options.width),
      renderer_(sibling.renderer_->MakeSibling(physics.model())) {
  CheckImageSize(height_, width_);
}

void Camera::Render(Physics& physics, std::span<uint8_t> rgb,
                    const CameraView& view) {
  renderer_->SetBackground(view.background);
  mjData& data = physics.mutable_data();
  if (!view.pose) {
    renderer_->Render(physics.model(), data, id_, height_, width_, rgb);
    return;
  }
  if (id_ < 0) {
    throw InvalidArgument(fmt::format(
        "{}: a pose for the free camera; allowed: a camera of the model",
        physics.name()));
  }
  double* position = data.cam_xpos + 3 * id_;
  double* rotation = data.cam_xmat + 9 * id_;
  CameraPose own;
  std::copy_n(position, 3, own.position.data());
  std::copy_n(rotation, 9, own.rotation.data());
  const auto place = [&](const CameraPose& pose) {
    std::ranges::copy(pose.position, position);
    std::ranges::copy(pose.rotation, rotation);
  };
  place(*view.pose);
  try {
    renderer_->Render(physics.model(), data, id_, height_, width_, rgb);
  } catch (...) {
    place(own);
    throw;
  }
  place(own);
}

void Camera::ReloadAssets(const Physics& physics) {
  renderer_->ReloadAssets(physics.model());
}

size_t Camera::size_bytes() const {
  return size_t{3} * static_cast<size_t>(height_) * static_cast<size_t>(width_);
}

}  // namespace replicant::env
