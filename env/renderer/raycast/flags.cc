#include "env/renderer/raycast/flags.h"

#include <fmt/format.h>

#include <array>

#include "env/renderer/scene.h"

namespace replicant::env::raycast {
namespace {

[[noreturn]] void Refuse(const char* what) {
  throw UnsupportedScene(
      fmt::format("raycast: the scene has {}, which cannot be drawn; hint: use "
                  "the renderer "
                  "gl",
                  what));
}

}  // namespace

void CheckEffects(const mjvScene& scene, bool is_lit) {
  const auto has = [&](int flag) { return scene.flags[flag] != 0; };
  if (has(mjRND_WIREFRAME)) Refuse("the flag mjRND_WIREFRAME");
  if (!has(mjRND_CULL_FACE)) Refuse("the flag mjRND_CULL_FACE turned off");
  if (scene.stereo != mjSTEREO_NONE) Refuse("a stereoscopic mode");
  if (scene.enabletransform != 0) Refuse("a transformation");
  if (!is_lit) return;
  if (has(mjRND_ADDITIVE)) Refuse("the flag mjRND_ADDITIVE");
  if (has(mjRND_DEPTH)) Refuse("the flag mjRND_DEPTH");
  if (has(mjRND_SEGMENT)) Refuse("the flag mjRND_SEGMENT");
  for (int i = 0; i < scene.ngeom; ++i) {
    if (scene.geoms[i].label[0] != '\0') Refuse("a geom with a label");
  }
}

void ApplyFlags(const mjvScene& scene, Snapshot& snapshot) {
  if (scene.flags[mjRND_SHADOW] == 0) {
    for (Light& light : snapshot.lights) light.casts_shadow = false;
  }
  if (scene.flags[mjRND_REFLECTION] == 0) snapshot.mirror = -1;
  if (scene.flags[mjRND_SKYBOX] == 0 && snapshot.sky != nullptr) {
    snapshot.sky = nullptr;
    for (Primitive& p : snapshot.primitives) p.may_meet_sky = false;
  }
}

}  // namespace replicant::env::raycast
