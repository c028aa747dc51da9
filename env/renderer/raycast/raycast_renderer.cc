#include "env/renderer/raycast/raycast_renderer.h"

#include "env/renderer/raycast/draw.h"

namespace replicant::env {

RaycastRenderer::RaycastRenderer(const mjModel& model)
    : scene_(model),
      tables_(raycast::MakeTables(model.vis.quality.numslices,
                                  model.vis.quality.numstacks,
                                  model.vis.quality.numquads)) {
  RaycastRenderer::ReloadAssets(model);
}

void RaycastRenderer::Render(const mjModel& model, mjData& data, int camera,
                             int height, int width, std::span<uint8_t> rgb) {
  CheckImage(height, width, rgb);
  const mjvScene& scene = scene_.Update(model, data, camera);
  raycast::TakeSnapshot(model, scene, assets_, height, width, snapshot_);
  raycast::Draw(snapshot_, tables_, frame_, rgb);
}

void RaycastRenderer::ReloadAssets(const mjModel& model) {
  assets_ = {};
  for (int id = 0; id < model.ntex; ++id) {
    assets_.textures.push_back(raycast::MakeTexture(model, id));
  }
  for (int id = 0; id < model.nmesh; ++id) {
    assets_.meshes.push_back(raycast::MakeMesh(model, id));
  }
  for (int id = 0; id < model.nhfield; ++id) {
    assets_.height_fields.push_back(raycast::MakeHeightField(model, id));
  }
  // paint the sky anew
  frame_.sky.height = 0;
}

}  // namespace replicant::env
