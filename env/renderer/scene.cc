#include "env/renderer/scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace replicant::env {
namespace {

// Room for geoms at first, about 0.3 MB.
constexpr int kFewGeoms = 1000;
// More than any model draws.
constexpr int kMaxGeoms = 100'000'000;

}  // namespace

Scene::Scene(const mjModel& model) {
  mjv_defaultScene(&scene_);
  mjv_makeScene(&model, &scene_, kFewGeoms);
  mjv_defaultOption(&option_);
  option_.flags[mjVIS_RANGEFINDER] = 0;
  mjv_defaultPerturb(&perturb_);
  mjv_defaultCamera(&camera_);
}

Scene::~Scene() { mjv_freeScene(&scene_); }

mjvScene& Scene::Update(const mjModel& model, mjData& data, int camera) {
  if (camera < -1 || camera >= model.ncam) {
    throw InvalidArgument(
        fmt::format("Renderer: camera {} given; allowed: -1 (free) to {}",
                    camera, model.ncam - 1));
  }
  camera_.fixedcamid = camera;
  if (camera == -1) {
    camera_.type = mjCAMERA_FREE;
    mjv_defaultFreeCamera(&model, &camera_);
  } else {
    camera_.type = mjCAMERA_FIXED;
  }
  for (;;) {
    // infinite planes are centred at the camera of the update before: forget
    // it, so that a picture depends on nothing before it
    scene_.camera[0] = scene_.camera[1] = mjvGLCamera{};
    mjv_updateScene(&model, &data, &option_, &perturb_, &camera_, mjCAT_ALL,
                    &scene_);
    // the number of geoms depends on the state: a slack tendon is 31 capsules
    if (scene_.status == 0) return scene_;
    MakeLarger(model);
  }
}

void Scene::MakeLarger(const mjModel& model) {
  if (scene_.maxgeom > kMaxGeoms / 2) {
    throw Error(fmt::format(
        "Renderer: the scene has more than {} geoms; hint: was the renderer "
        "made for another model?",
        scene_.maxgeom));
  }
  const int size = 2 * scene_.maxgeom;
  std::array<mjtByte, mjNRNDFLAG> flags;
  std::copy_n(scene_.flags, mjNRNDFLAG, flags.begin());
  mjv_freeScene(&scene_);
  mjv_makeScene(&model, &scene_, size);
  std::copy_n(flags.begin(), mjNRNDFLAG, scene_.flags);
}

void CheckImageSize(int height, int width) {
  constexpr int kMaxSide = 4096;
  if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide) {
    throw InvalidArgument(
        fmt::format("Renderer: a picture of {} x {} requested; each side must "
                    "be in [1, {}]",
                    height, width, kMaxSide));
  }
}

void CheckImage(int height, int width, std::span<const uint8_t> rgb) {
  CheckImageSize(height, width);
  const size_t want =
      size_t{3} * static_cast<size_t>(height) * static_cast<size_t>(width);
  if (rgb.size() != want) {
    throw InvalidArgument(
        fmt::format("Renderer: {} bytes given for a picture of {} x {} x 3, "
                    "which needs {}",
                    rgb.size(), height, width, want));
  }
}

}  // namespace replicant::env
