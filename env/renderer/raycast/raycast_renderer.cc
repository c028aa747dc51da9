#include "env/renderer/raycast/raycast_renderer.h"

#include <utility>

#include "env/renderer/raycast/draw.h"

namespace replicant::env {

namespace {

// Reuses unchanged assets of `old`, which may be null.
std::shared_ptr<const raycast::Assets> MakeAssets(const mjModel& model,
                                                  const raycast::Assets* old) {
  auto assets = std::make_shared<raycast::Assets>();
  for (int id = 0; id < model.ntex; ++id) {
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

}  // namespace

RaycastRenderer::RaycastRenderer(const mjModel& model)
    : RaycastRenderer(model, MakeAssets(model, nullptr)) {}

RaycastRenderer::RaycastRenderer(const mjModel& model,
                                 std::shared_ptr<const raycast::Assets> assets)
    : scene_(model),
      tables_(raycast::MakeTables(model.vis.quality.numslices,
                                  model.vis.quality.numstacks,
                                  model.vis.quality.numquads)),
      assets_(std::move(assets)) {}

std::unique_ptr<Renderer> RaycastRenderer::MakeSibling(
    const mjModel& model) const {
  return std::unique_ptr<Renderer>(new RaycastRenderer(model, assets_));
}

void RaycastRenderer::Render(const mjModel& model, mjData& data, int camera,
                             int height, int width, std::span<uint8_t> rgb) {
  CheckImage(height, width, rgb);
  const mjvScene& scene = scene_.Update(model, data, camera);
  // working memory that keeps nothing from one picture to the next: renderers
  // that take turns on a thread share it, so it stays in the cache
  thread_local raycast::Snapshot snapshot;
  thread_local raycast::Frame frame;
  raycast::TakeSnapshot(model, scene, *assets_, height, width, snapshot);
  raycast::Draw(snapshot, tables_, frame, sky_, rgb);
}

void RaycastRenderer::ReloadAssets(const mjModel& model) {
  assets_ = MakeAssets(model, assets_.get());
  // paint the sky anew
  sky_.height = 0;
}

}  // namespace replicant::env
