// Scenes in fog, drawn by the ray caster and by OpenGL.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/raycast_renderer.h"
#include "env/renderer/scene.h"
#include "tests/env/renderer/suite_model.h"

namespace replicant::env {
namespace {

constexpr int kSide = 84;

// Shadows, a mirror, textures, a mesh, transparent and transparent-textured
// geoms, under a sky with haze.
std::string FoggyScene(const std::string& projection) {
  return R"(
<mujoco>
  <statistic extent="2" center="0 0 .5"/>
  <visual>
    <map fogstart="1" fogend="3" zfar="12"/>
    <rgba fog=".7 .5 .2 1"/>
  </visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 0"
             width="64" height="64"/>
    <texture name="t" type="2d" builtin="checker" rgb1=".9 .1 .1"
             rgb2=".1 .2 .9" width="64" height="64"/>
    <material name="mirrored" texture="t" texrepeat="3 3" reflectance=".4"/>
    <material name="m" texture="t"/>
    <mesh name="wedge" vertex="0 0 0 .5 0 0 0 .5 0 0 0 .6"/>
  </asset>
  <worldbody>
    <light pos="0 -1 3" dir="0 .3 -1"/>
    <light pos="2 0 3" dir="-.5 0 -1" diffuse=".3 .3 .3" castshadow="false"/>
    <camera pos="0 -3 1" xyaxes="1 0 0 0 .1 1" )" +
         projection + R"(/>
    <geom type="plane" size="2 3 .1" material="mirrored"/>
    <geom type="plane" size="0 0 .1" pos="0 0 -.2" rgba=".4 .6 .4 1"/>
    <geom size=".4" pos="-1 0 .6" rgba=".8 .2 .2 1"/>
    <geom type="box" size=".3 .2 .4" pos="1 1 .5" material="m"/>
    <geom type="mesh" mesh="wedge" pos="0 2 .6"/>
    <geom type="capsule" size=".2 .4" pos="0 -.5 .5" euler="0 60 0"
          rgba=".2 .8 .3 .5"/>
    <geom type="cylinder" size=".3 .3" pos=".2 4 .7" material="m"/>
  </worldbody>
</mujoco>)";
}

class RaycastFogTest : public ::testing::TestWithParam<const char*> {};

// Would catch: fog left out, added twice where a light casts shadow, counted
// from another distance, or missing on the sky, its haze or in the mirror.
TEST_P(RaycastFogTest, PicturesLookLikeOpenGl) {
  SuiteModel model = ModelOf(FoggyScene(GetParam()));
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  RaycastRenderer raycast(*model.model);
  Scene scene(*model.model);
  Picture clear(size_t{3} * kSide * kSide), expected = clear, rgb = clear;
  const auto update = [&](mjtByte has_fog) -> mjvScene& {
    mjvScene& updated = scene.Update(*model.model, *model.data, /*camera=*/0);
    updated.flags[mjRND_FOG] = has_fog;
    return updated;
  };
  raycast.RenderScene(*model.model, update(0), kSide, kSide, clear);
  raycast.RenderScene(*model.model, update(1), kSide, kSide, rgb);
  gl->RenderScene(update(1), kSide, kSide, expected);
  EXPECT_GT(MeanDifference(clear, expected), 20);
  EXPECT_LE(MeanDifference(rgb, expected), 0.6);
  // and no fog is left behind
  raycast.RenderScene(*model.model, update(0), kSide, kSide, rgb);
  EXPECT_EQ(rgb, clear);
}

INSTANTIATE_TEST_SUITE_P(
    Cameras, RaycastFogTest,
    ::testing::Values("", "projection='orthographic' fovy='3'"),
    [](const auto& test) {
      return std::string(test.index == 0 ? "perspective" : "orthographic");
    });

}  // namespace
}  // namespace replicant::env
