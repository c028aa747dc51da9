#include "env/renderer/raycast/raycast_renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "env/renderer/raycast/depth.h"
#include "env/renderer/raycast/draw.h"
#include "env/renderer/raycast/flags.h"

namespace replicant::env {

namespace {

// Reuses unchanged assets of `old`, which may be null.
std::shared_ptr<const raycast::Assets> MakeAssets(const mjModel& model,
                                                  const raycast::Assets* old) {
  auto assets = std::make_shared<raycast::Assets>();
  for (int id = 0; id < model.ntex; ++id) {
    if (model.tex_adr[id] < 0) {
      throw UnsupportedScene(fmt::format(
          "raycast: texture {} is left in its file; hint: compile the model "
          "with the texture inside",
          id));
    }
    // mip maps take long, and textures seldom change
    const auto at = static_cast<size_t>(id);
    assets->textures.push_back(
        old != nullptr && raycast::IsTextureOf(*old->textures[at], model, id)
            ? old->textures[at]
            : std::make_shared<raycast::Texture>(
                  raycast::MakeTexture(model, id)));
  }
  for (int id = 0; id < model.nmesh; ++id) {
    assets->meshes.push_back(raycast::MakeMesh(model, id));
  }
  for (int id = 0; id < model.nhfield; ++id) {
    assets->height_fields.push_back(raycast::MakeHeightField(model, id));
  }
  for (int id = 0; id < model.nskin; ++id) {
    assets->skins.push_back(raycast::MakeSkin(model, id));
  }
  return assets;
}

void CheckOutput(int height, int width, size_t channels, size_t size) {
  CheckImageSize(height, width);
  const size_t want =
      channels * static_cast<size_t>(height) * static_cast<size_t>(width);
  if (size == want) return;
  throw InvalidArgument(fmt::format(
      "Renderer: {} numbers given for a picture of {} x {} x {}, which needs "
      "{}",
      size, height, width, channels, want));
}

// What the middle of each pixel sees; see FindNearest().
struct Nearest {
  std::vector<float> nearness;
  std::vector<int32_t> primitive;
};

Nearest& FindObjects(const mjModel& model, const mjvScene& scene,
                     const raycast::Assets& assets,
                     const raycast::Tables& tables, int height, int width,
                     raycast::Snapshot& snapshot) {
  // working memory
  thread_local Nearest nearest;
  thread_local std::vector<uint8_t> is_shown;
  raycast::CheckEffects(scene, /*is_lit=*/false);
  raycast::TakeSnapshot(model, scene, assets, height, width, snapshot);
  is_shown.resize(snapshot.primitives.size());
  for (size_t i = 0; i < is_shown.size(); ++i) {
    // mjv_initGeom() leaves it as it was in memory
    const int number = scene.geoms[i].segid;
    is_shown[i] = number >= 0 && number < scene.ngeom ? 1 : 0;
  }
  const size_t size = static_cast<size_t>(height) * static_cast<size_t>(width);
  nearest.nearness.resize(size);
  nearest.primitive.resize(size);
  raycast::FindNearest(snapshot, tables, is_shown, nearest.nearness,
                       nearest.primitive);
  return nearest;
}

}  // namespace

RaycastRenderer::RaycastRenderer(const mjModel& model,
                                 const RaycastRenderer* like)
    : RaycastRenderer(
          model,
          MakeAssets(model, like == nullptr ? nullptr : like->assets_.get()),
          std::make_shared<ScenePool>()) {}

RaycastRenderer::RaycastRenderer(const mjModel& model,
                                 std::shared_ptr<const raycast::Assets> assets,
                                 std::shared_ptr<ScenePool> scenes)
    : scenes_(std::move(scenes)),
      tables_(raycast::MakeTables(model.vis.quality.numslices,
                                  model.vis.quality.numstacks,
                                  model.vis.quality.numquads)),
      assets_(std::move(assets)) {}

std::unique_ptr<Renderer> RaycastRenderer::MakeSibling(
    const mjModel& model) const {
  return std::unique_ptr<Renderer>(
      new RaycastRenderer(model, assets_, scenes_));
}

void RaycastRenderer::Render(const mjModel& model, mjData& data, int camera,
                             int height, int width, std::span<uint8_t> rgb) {
  CheckImage(height, width, rgb);
  std::unique_ptr<Scene> scene = scenes_->Take(model);
  RenderScene(model, scene->Update(model, data, camera), height, width, rgb);
  scenes_->Return(std::move(scene));
}

void RaycastRenderer::RenderScene(const mjModel& model, const mjvScene& scene,
                                  int height, int width,
                                  std::span<uint8_t> rgb) {
  CheckImage(height, width, rgb);
  if (!background_.empty() && background_.size() != rgb.size()) {
    throw InvalidArgument(
        fmt::format("Renderer: a background of {} bytes for a picture of {} x "
                    "{} x 3, which needs {}",
                    background_.size(), height, width, rgb.size()));
  }
  raycast::CheckEffects(scene, /*is_lit=*/true);
  // working memory that keeps nothing from one picture to the next: renderers
  // that take turns on a thread share it, so it stays in the cache
  thread_local raycast::Snapshot snapshot;
  thread_local raycast::Frame frame;
  raycast::TakeSnapshot(model, scene, *assets_, height, width, snapshot);
  raycast::ApplyFlags(scene, snapshot);
  snapshot.background = background_.empty() ? nullptr : background_.data();
  raycast::Draw(snapshot, tables_, frame, sky_, rgb);
}

void RaycastRenderer::RenderDepth(const mjModel& model, const mjvScene& scene,
                                  int height, int width,
                                  std::span<float> depth) {
  CheckOutput(height, width, 1, depth.size());
  thread_local raycast::Snapshot snapshot;
  const Nearest& nearest =
      FindObjects(model, scene, *assets_, tables_, height, width, snapshot);
  if (snapshot.rays.are_parallel) {
    std::ranges::transform(nearest.nearness, depth.begin(),
                           [](float nearness) { return 1.0f / nearness; });
    return;
  }
  // the depth buffer's value with the far plane at 0, as OpenGL has it
  const double near = snapshot.near_depth;
  const double far = snapshot.far_depth;
  const double scale = near / (far - near);
  // mujoco.Renderer turns it back with coefficients in float32
  const auto znear =
      static_cast<float>(double{model.vis.map.znear} * model.stat.extent);
  const auto zfar =
      static_cast<float>(double{model.vis.map.zfar} * model.stat.extent);
  const float c = -0.5f * (-(zfar + znear) / (zfar - znear)) - 0.5f;
  const float d = -0.5f * (-(2.0f * zfar * znear) / (zfar - znear));
  std::transform(nearest.nearness.begin(), nearest.nearness.end(),
                 depth.begin(), [&](float nearness) {
                   const auto z = static_cast<float>(
                       std::max(0.0, scale * (far * double{nearness} - 1)));
                   return static_cast<float>(double{d} / (double{z} + c));
                 });
}

void RaycastRenderer::RenderSegmentation(const mjModel& model,
                                         const mjvScene& scene, int height,
                                         int width,
                                         std::span<int32_t> objects) {
  CheckOutput(height, width, 2, objects.size());
  thread_local raycast::Snapshot snapshot;
  const Nearest& nearest =
      FindObjects(model, scene, *assets_, tables_, height, width, snapshot);
  for (size_t i = 0; i < nearest.primitive.size(); ++i) {
    const int32_t geom = nearest.primitive[i];
    objects[2 * i] = geom < 0 ? -1 : scene.geoms[geom].objid;
    objects[2 * i + 1] = geom < 0 ? -1 : scene.geoms[geom].objtype;
  }
}

void RaycastRenderer::ReloadAssets(const mjModel& model) {
  assets_ = MakeAssets(model, assets_.get());
  // paint the sky anew
  sky_.height = 0;
}

}  // namespace replicant::env
