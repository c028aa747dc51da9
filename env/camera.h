#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "env/physics.h"
#include "env/renderer/renderer.h"

namespace replicant::env {

// Camera, size and renderer of a picture.
struct CameraOptions {
  // Name of a camera of the model or its number; -1 is MuJoCo's free camera.
  std::string camera = "0";
  int height = 84;
  int width = 84;
  RendererOptions renderer;
};

// Where a camera stands, in the world: it looks along -z, and y is up in its
// picture.
struct CameraPose {
  std::array<double, 3> position{};
  std::array<double, 9> rotation{};  // row-major, camera to world
};

// How a picture differs from what the camera of the model shows.
struct CameraView {
  // In place of the camera's own.
  std::optional<CameraPose> pose;
  // uint8 [height, width, 3], seen where the sky would be; empty: the sky.
  std::span<const uint8_t> background;
};

// The number of the camera whose name or number is `camera`. Throws
// InvalidArgument, listing the model's cameras, if there is none.
int FindCamera(const Physics& physics, const std::string& camera);

// A camera of one model, with its renderer.
//
// Thread-safety: one thread at a time, which may change between calls.
class Camera {
 public:
  // Throws InvalidArgument for an unknown camera or an invalid picture size,
  // and what MakeRenderer() throws.
  Camera(const Physics& physics, const CameraOptions& options);

  // The same camera for a copy of the model. Both share one copy of its
  // textures, meshes and height fields.
  Camera(const Camera& sibling, const Physics& physics);

  // Another camera of the model of `physics`, which is the sibling's or a copy,
  // with the sibling's renderer and its assets. Throws as the first
  // constructor.
  Camera(const Camera& sibling, const Physics& physics,
         const CameraOptions& options);

  // Draws the current state of `physics` as uint8 [height, width, 3], row 0 on
  // top. `physics` must have the camera's model; its simulation is unaffected.
  // Throws as Renderer::Render() and Renderer::SetBackground() do, and
  // InvalidArgument for a pose of the free camera.
  void Render(Physics& physics, std::span<uint8_t> rgb,
              const CameraView& view = {});

  // Must be called after a change of height fields, textures or meshes.
  void ReloadAssets(const Physics& physics);

  // Number of the camera in the model; -1: the free camera.
  int id() const { return id_; }
  int height() const { return height_; }
  int width() const { return width_; }
  // height * width * 3.
  size_t size_bytes() const;

 private:
  int id_;
  int height_, width_;
  std::unique_ptr<Renderer> renderer_;
};

}  // namespace replicant::env
