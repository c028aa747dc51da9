// Scenes of one feature each, drawn by the ray caster and by OpenGL.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "base/error.h"
#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/raycast_renderer.h"
#include "tests/env/renderer/suite_model.h"

namespace replicant::env {
namespace {

// `body` stands in a room with a light and a camera unless it has its own.
struct SceneCase {
  const char* name;
  const char* assets;
  const char* body;
  // largest mean difference to OpenGL, of 255; the pictures before the feature
  // was drawn differed by more than twice as much
  double mean_difference;
};
std::ostream& operator<<(std::ostream& out, const SceneCase& scene) {
  return out << scene.name;
}

constexpr const char* kCamera =
    R"(<camera pos="0 -3 1.5" xyaxes="1 0 0 0 .45 .9"/>)";

std::string MjcfOf(const SceneCase& scene) {
  const std::string body = scene.body;
  const bool has_light = body.find("<light") != std::string::npos;
  const bool has_camera = body.find("<camera") != std::string::npos;
  return "<mujoco><asset>" + std::string(scene.assets) + "</asset><worldbody>" +
         (has_light ? "" : R"(<light pos="0 -1 3" dir="0 .3 -1"/>)") +
         (has_camera ? "" : kCamera) + body + "</worldbody></mujoco>";
}

class RaycastScenesTest : public ::testing::TestWithParam<SceneCase> {};

TEST_P(RaycastScenesTest, PicturesLookLikeOpenGl) {
  SuiteModel model = ModelOf(MjcfOf(GetParam()));
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  RaycastRenderer raycast(*model.model);
  for (const int camera : {0, -1}) {
    const Picture expected = Draw(*gl, model, camera);
    EXPECT_LE(MeanDifference(Draw(raycast, model, camera), expected),
              GetParam().mean_difference)
        << "camera " << camera;
  }
}

constexpr const char* kMarked = R"(
  <texture name="t" type="2d" builtin="checker" rgb1=".9 .1 .1" rgb2=".1 .2 .9"
           mark="edge" markrgb="1 1 0" width="64" height="64"/>
  <material name="m" texture="t"/>
  <material name="repeated" texture="t" texrepeat="3 2"/>
  <material name="uniform" texture="t" texrepeat="3 2" texuniform="true"/>
  <material name="unscaled" texture="t" texrepeat="0 -3"/>
  <mesh name="mapped" vertex="-.4 -.4 -.4  .4 -.4 -.4  0 .4 -.4  0 0 .5"
        face="0 2 1  0 1 3  1 2 3  2 0 3" texcoord="0 0  1 0  0 1  1 1"/>
  <mesh name="plain" vertex="-.4 -.4 -.4  .4 -.4 -.4  0 .4 -.4  0 0 .5"/>
  <hfield name="hills" nrow="3" ncol="4" size=".5 .5 .3 .1"
          elevation="0 .1 .2 .3 .4 .9 .6 .1 .8 .2 .9 .1"/>)";

constexpr const char* kCubes = R"(
  <texture name="c" type="cube" builtin="checker" rgb1=".8 .4 .2"
           rgb2=".3 .2 .6" mark="edge" markrgb="1 1 1" width="16" height="16"/>
  <material name="plain" texture="c"/>
  <material name="uniform" texture="c" texuniform="true"/>)";

// corners and edges of wide texels, where neighbouring faces differ
constexpr const char* kCoarseCubes = R"(
  <texture name="checker" type="cube" builtin="checker" rgb1="1 .9 0"
           rgb2="0 .1 1" width="4" height="4"/>
  <texture name="flat" type="cube" builtin="flat" rgb1="1 .9 0" rgb2="0 .1 1"
           width="4" height="4"/>
  <material name="uniform" texture="checker" texuniform="true"/>
  <material name="flat" texture="flat"/>)";

constexpr const char* kFloorAndBall = R"(
  <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
  <geom size=".4" pos="0 0 1" rgba="1 0 0 1"/>)";

// OpenGL adds the light of a lamp with shadow for both of two equal faces
constexpr const char* kDoubled = R"(
  <mesh name="doubled" vertex="-.4 -.4 -.4  .4 -.4 -.4  0 .4 -.4  0 0 .5"
        face="0 2 1  0 1 3  1 3 0  1 2 3  2 0 3"/>)";

// pixels that see two faces of one geom
constexpr const char* kFaces = R"(
  <geom type="box" size=".6 .4 .3" pos="-.5 .2 .5" euler="20 30 40"
        rgba="1 .9 .7 1"/>
  <geom type="cylinder" size=".4 .2" pos=".7 0 .6" euler="30 10 0"
        rgba="1 .9 .7 1"/>
  <geom type="box" size=".2 .2 .2" pos="0 -.8 .4" euler="10 20 30"
        rgba=".2 .4 1 .6"/>)";

const std::string kWideSpot =
    std::string(R"(<light pos="0 -1 3" dir="0 .3 -1" cutoff="100"/>)") +
    kFloorAndBall;
const std::string kPointLight = std::string(R"(<light pos="1 1 3" type="point"/>
                   <light pos="0 -1 3" dir="0 .3 -1"/>)") +
                                kFloorAndBall;
const std::string kPointLightAlone =
    std::string(R"(<light pos="1 1 3" type="point" castshadow="false"/>)") +
    kFloorAndBall;
// the ambient part does not reach what turns away from a lamp with shadow
const std::string kAmbientLamps = R"(
  <light pos="-2 1 3" dir=".6 -.2 -1" ambient=".4 .2 .1"/>
  <light directional="true" dir=".2 .9 -1" pos="0 -2 3" ambient=".1 .3 .2"/>
  <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
  <geom size=".4" pos="-.9 0 .7" rgba="1 .5 .5 1"/>
  <geom type="box" size=".3 .3 .3" pos="0 -.3 .6" euler="20 30 40"/>
  <geom type="capsule" size=".2 .3" pos=".9 0 .6" euler="0 60 0"/>
  <geom type="cylinder" size=".2 .3" pos=".2 .9 .6" euler="60 0 0"/>)";
const std::string kLampPlane =
    std::string(R"(<light directional="true" pos="0 0 1.2" dir="0 0 -1"/>)") +
    kFloorAndBall;
const std::string kSrgb = std::string(kMarked).replace(
    std::string(kMarked).find("width"), 0, R"(colorspace="sRGB" )");

INSTANTIATE_TEST_SUITE_P(
    Faces, RaycastScenesTest,
    ::testing::Values(SceneCase{"boxes_and_cylinder", "", kFaces, 0.2},
                      SceneCase{"of_a_mesh_that_coincide", kDoubled,
                                R"(<geom type="mesh" mesh="doubled"
                                    pos="0 0 .6"/>)",
                                0.2}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Lights, RaycastScenesTest,
    ::testing::Values(
        SceneCase{"wide_spot", "", kWideSpot.c_str(), 0.5},
        SceneCase{"point_light_is_left_out", "", kPointLight.c_str(), 0.5},
        // as if there was no light
        SceneCase{"point_light_alone", "", kPointLightAlone.c_str(), 0.5},
        SceneCase{"lamps_with_ambient_light", "", kAmbientLamps.c_str(), 0.5},
        SceneCase{"lamp_inside_a_ball", "", R"(
          <light pos="0 0 2" dir="0 0 -1" cutoff="60"/>
          <geom type="plane" size="2 2 .1" rgba=".6 .6 .6 1"/>
          <geom size=".2" pos="0 0 2" rgba="1 1 .5 1"/>
          <geom type="box" size=".3 .3 .3" pos="0 0 .3"/>)",
                  0.5},
        SceneCase{"lamp_plane_cuts_a_ball", "", kLampPlane.c_str(), 0.5},
        SceneCase{"open_mesh_casts_shadow",
                  R"(<mesh name="sheet" vertex="-.5 -.5 0 .5 -.5 0 .5 .5 0
                 -.5 .5 0 0 0 -.01" face="0 2 1 0 3 2 0 1 4"/>)",
                  R"(<geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
                 <geom type="mesh" mesh="sheet" pos="0 0 1"/>)",
                  0.5}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(Flexes, RaycastScenesTest,
                         ::testing::Values(SceneCase{"rope", "", R"(
          <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
          <body name="b" pos="0 0 .8">
            <flexcomp name="rope" type="grid" dim="1" count="12 1 1"
                      radius=".05" spacing=".15 .1 .1" euler="0 20 10"
                      rgba=".8 .4 .2 1"/>
          </body>)",
                                                     0.3}),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

INSTANTIATE_TEST_SUITE_P(
    Textures, RaycastScenesTest,
    ::testing::Values(
        SceneCase{"flat_on_a_box", kMarked,
                  R"(<geom type="box" size=".7 .5 .4" pos="0 0 .6"
                 euler="10 20 30" material="m"/>)",
                  0.6},
        SceneCase{"flat_on_a_sphere", kMarked,
                  R"(<geom size=".6" pos="0 0 .6" material="repeated"/>)", 0.6},
        SceneCase{"flat_on_an_ellipsoid", kMarked,
                  R"(<geom type="ellipsoid" size=".6 .4 .8" pos="0 0 .6"
                 euler="60 20 0" material="m"/>)",
                  0.6},
        SceneCase{"flat_on_a_capsule", kMarked,
                  R"(<geom type="capsule" size=".4 .4" pos="0 0 .6"
                 euler="60 20 0" material="repeated"/>)",
                  0.6},
        SceneCase{"flat_on_a_cylinder", kMarked,
                  R"(<geom type="cylinder" size=".6 .4" pos="0 0 .6"
                 euler="40 20 0" material="uniform"/>)",
                  0.6},
        SceneCase{
            "flat_on_a_mapped_mesh", kMarked,
            R"(<geom type="mesh" mesh="mapped" pos="-.5 0 .6" material="m"/>
                 <geom type="mesh" mesh="mapped" pos=".5 0 .6"
                 material="uniform"/>)",
            0.6},
        SceneCase{
            "flat_on_a_plain_mesh", kMarked,
            R"(<geom type="mesh" mesh="plain" pos="-.5 0 .6" material="m"/>
                 <geom type="mesh" mesh="plain" pos=".5 0 .6"
                 material="uniform"/>)",
            0.6},
        SceneCase{"flat_on_a_height_field", kMarked,
                  R"(<geom type="hfield" hfield="hills" pos="0 0 .5"
                 material="repeated"/>)",
                  0.6},
        // only the mesh without coordinates takes such a repeat as it is
        SceneCase{"repeated_zero_times", kMarked,
                  R"(<geom type="plane" size="2 2 .1" material="unscaled"/>
                 <geom type="box" size=".3 .3 .3" pos="-.9 0 .6"
                 euler="10 20 30" material="unscaled"/>
                 <geom type="mesh" mesh="mapped" pos="0 0 .6"
                 material="unscaled"/>
                 <geom type="mesh" mesh="plain" pos=".9 0 .6"
                 material="unscaled"/>)",
                  0.6},
        SceneCase{"in_srgb", kSrgb.c_str(),
                  R"(<geom type="plane" size="2 2 .1" material="repeated"/>
                 <geom size=".4" pos="0 0 .6" material="m"/>)",
                  0.6},
        SceneCase{"cube_in_srgb_is_taken_as_it_is", R"(
          <texture name="c" type="cube" builtin="checker" rgb1=".8 .4 .2"
                   rgb2=".3 .2 .6" width="16" height="16" colorspace="sRGB"/>
          <material name="c" texture="c"/>)",
                  R"(<geom size=".5" pos="0 0 .6" material="c"/>)", 0.5},
        SceneCase{"far_checker", R"(
          <texture name="t" type="2d" builtin="checker" rgb1="0 0 0"
                   rgb2="1 1 1" width="100" height="100"/>
          <material name="m" texture="t" texrepeat="60 60"/>)",
                  R"(<camera pos="0 -10 10" xyaxes="1 .1 0 0 .7 .7"/>
                 <geom type="plane" size="40 40 40" material="m"/>)",
                  0.6},
        SceneCase{"on_an_infinite_plane", kMarked, R"(
          <geom type="plane" size="0 0 .1" material="repeated"/>
          <geom size=".2" pos="0 0 .3"/>)",
                  0.6},
        SceneCase{"on_a_half_infinite_plane", kMarked, R"(
          <geom type="plane" size="1.3 0 .1" material="repeated"/>
          <geom size=".2" pos="0 0 .3"/>)",
                  0.6},
        SceneCase{"cube_on_a_uniform_plane", kCubes, R"(
          <geom type="plane" size="1.5 .7 .1" material="uniform"/>)",
                  0.6},
        SceneCase{"cube_on_a_uniform_half_infinite_plane", kCubes, R"(
          <geom type="plane" size="1.5 0 .1" material="uniform"/>)",
                  0.6},
        SceneCase{"cube_on_a_uniform_infinite_plane", kCoarseCubes, R"(
          <geom type="plane" size="0 0 .1" material="uniform"/>)",
                  0.6},
        SceneCase{"edges_of_a_cube", kCoarseCubes, R"(
          <geom type="box" size=".5 .4 .4" pos="0 0 .7" euler="30 40 10"
                material="flat"/>
          <geom size=".3" pos=".9 -.4 .6" euler="30 40 10" material="flat"/>)",
                  0.3},
        SceneCase{"cube_on_capsules", kCubes, R"(
          <geom type="capsule" size=".5 .15" pos="-.6 0 .8" euler="60 30 20"
                material="uniform"/>
          <geom type="capsule" size=".2 .5" pos=".7 0 .8" euler="60 30 20"
                material="plain"/>)",
                  0.6},
        SceneCase{
            "cube_on_a_mapped_mesh", R"(
          <texture name="c" type="cube" builtin="checker" rgb1="1 1 0"
                   rgb2="0 0 1" width="16" height="16"/>
          <material name="c" texture="c"/>
          <mesh name="mapped" vertex="-.4 -.4 -.4  .4 -.4 -.4  0 .4 -.4  0 0 .5"
                face="0 2 1  0 1 3  1 2 3  2 0 3"
                texcoord="0 0  1 0  0 1  1 1"/>)",
            R"(<geom type="mesh" mesh="mapped" pos="0 0 .6" material="c"/>)",
            0.5}),
    [](const auto& test) { return std::string(test.param.name); });

constexpr const char* kMirror = R"(
  <material name="mirror" reflectance=".5" rgba=".4 .4 .5 1"/>)";
constexpr const char* kMirrorFloor =
    R"(<geom type="plane" size="2 2 .1" material="mirror"/>)";
const std::string kBehindAPlane =
    std::string(kMirrorFloor) +
    R"(<geom type="plane" size=".5 .5 .1" pos="0 0 1" rgba="1 0 0 1"/>)";
const std::string kTransparentBox =
    std::string(kMirrorFloor) +
    R"(<geom type="box" size=".3 .3 .3" pos="0 0 .5" rgba="1 0 0 .5"/>)";
const std::string kTransparentWall =
    std::string(kMirrorFloor) +
    R"(<geom type="box" size="1.5 .05 1" pos="0 1.5 1" rgba="1 0 0 .5"/>
       <geom size=".3" pos="0 .5 .5" rgba="0 1 0 .4"/>)";
const std::string kMirrorBox =
    std::string(R"(<geom type="box" size=".8 .8 .2" material="mirror"
                    euler="0 0 30"/>
                   <geom size=".3" pos="0 0 .8" rgba="0 1 0 1"/>
                   <geom size=".2" pos=".5 .3 .6" rgba="1 0 0 .5"/>)") +
    kMirrorFloor;

INSTANTIATE_TEST_SUITE_P(
    Mirrors, RaycastScenesTest,
    ::testing::Values(
        SceneCase{"back_of_a_plane", kMirror, kBehindAPlane.c_str(), 0.5},
        SceneCase{"transparent_box", kMirror, kTransparentBox.c_str(), 0.5},
        SceneCase{"transparent_wall", kMirror, kTransparentWall.c_str(), 0.5},
        SceneCase{"box", kMirror, kMirrorBox.c_str(), 0.6}),
    [](const auto& test) { return std::string(test.param.name); });

constexpr const char* kHills = R"(
  <hfield name="hills" nrow="3" ncol="4" size=".9 .9 .5 .1"
          elevation="0 .1 .2 .3 .4 .9 .6 .1 .8 .2 .9 .1"/>
  <mesh name="torus" builtin="supertorus" params="20 .4 1 1" scale=".8 .8 .8"/>)";

INSTANTIATE_TEST_SUITE_P(Transparent, RaycastScenesTest,
                         ::testing::Values(SceneCase{"mesh", kHills, R"(
          <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
          <geom type="mesh" mesh="torus" pos="0 0 .8" euler="40 20 0"
                rgba="1 .3 0 .5"/>
          <geom size=".2" pos="0 .3 .8" rgba="0 1 0 .5"/>)",
                                                     0.6},
                                           SceneCase{"height_field", kHills, R"(
          <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
          <geom type="hfield" hfield="hills" pos="0 0 .5" rgba="0 .3 1 .4"/>)",
                                                     0.6}),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

constexpr const char* kSky = R"(
  <texture type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 0"
           width="64" height="64"/>)";
constexpr const char* kLevel = R"(<camera pos="0 0 2" xyaxes="1 0 0 0 0 1"/>)";
const std::string kHorizon =
    std::string(kLevel) + R"(<geom type="plane" size="0 0 .05"/>
                             <geom pos="0 3 2" size=".3"/>
                             <geom pos="1 30 2" size="3" rgba="1 0 0 .5"/>)";
const std::string kTilted =
    std::string(kLevel) +
    R"(<geom type="plane" size="0 0 .05" euler="10 5 0"/>)";

INSTANTIATE_TEST_SUITE_P(
    Haze, RaycastScenesTest,
    ::testing::Values(SceneCase{"at_the_horizon", kSky, kHorizon.c_str(), 0.6},
                      SceneCase{"over_a_tilted_plane", kSky, kTilted.c_str(),
                                0.6}),
    [](const auto& test) { return std::string(test.param.name); });

constexpr const char* kParallel =
    R"(<camera pos="0 -3 1.5" xyaxes="1 0 0 0 .45 .9" projection="orthographic"
        fovy="3.2"/>)";
const std::string kParallelRoom = std::string(kParallel) + R"(
  <light pos="0 -1 3" dir="0 .3 -1"/>
  <light pos="2 0 3" dir="-.5 0 -1" directional="true" diffuse=".3 .3 .3"/>
  <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
  <geom size=".3" pos="-1 0 .6" rgba=".8 .2 .2 1"/>
  <geom type="ellipsoid" size=".2 .3 .4" pos="1 .3 .5" euler="20 30 0"
        rgba=".2 .8 .2 1"/>
  <geom type="capsule" fromto="-.6 .8 .2 .2 1 .9" size=".15"
        rgba=".2 .2 .8 1"/>
  <geom type="cylinder" size=".2 .3" pos="0 -.6 .5" euler="50 0 20"
        rgba=".8 .8 .2 1"/>
  <geom type="box" size=".25 .2 .15" pos=".7 -.7 .4" euler="10 40 20"/>
  <geom type="mesh" mesh="torus" pos="0 .2 1.2" euler="40 20 0"/>
  <geom type="hfield" hfield="hills" pos="1.5 1 .1" rgba=".4 .5 .3 1"/>)";
const std::string kParallelMirror =
    kParallelRoom + R"(<geom type="box" size=".6 .4 .1" pos="-.7 -.6 .3"
                       rgba=".3 .3 .4 .5"/>
                       <geom type="box" size=".5 .5 .1" pos=".2 -.2 .15"
                       material="mirror"/>)";
const std::string kParallelFloor = std::string(kParallel) + R"(
  <geom type="plane" size="2 2 .1" material="mirrored"/>
  <geom type="plane" size=".6 .6 .1" pos="0 .5 1.2" euler="140 0 0"
        rgba="1 0 0 1"/>
  <geom size=".3" pos="-.8 0 .6" material="m"/>
  <geom size=".3" pos=".8 0 .6" rgba="0 1 0 .5"/>
  <geom type="box" size=".2 .2 .2" pos="0 -.6 .5" material="m"
        euler="10 20 30"/>)";
// beyond the plane's edge the rays start under it, where OpenGL culls it
const std::string kParallelLevel =
    R"(<camera pos="0 -3 .4" xyaxes="1 0 0 0 .1 1" projection="orthographic"
        fovy="3"/>
       <geom type="plane" size="2 2 .1" rgba=".6 .6 .6 1"/>
       <geom size=".3" pos="0 0 .3"/>)";
const std::string kParallelHorizon =
    R"(<camera pos="0 0 2" xyaxes="1 0 0 0 .05 1" projection="orthographic"
        fovy="30"/>
       <geom type="plane" size="0 0 .05"/>
       <geom pos="0 3 2" size="3"/>)";
const std::string kWiderThanTheSky =
    R"(<camera pos="0 -9 9" xyaxes="1 0 0 0 .7 .7" projection="orthographic"
        fovy="130"/>
       <geom type="plane" size="0 0 .05"/>
       <geom pos="0 3 2" size="2"/>)";
// the sky is narrower than the picture
const std::string kNearSky = std::string(kSky) + R"(</asset>
  <visual><map zfar="8"/></visual><statistic extent="3"/><asset>)";
const std::string kBesideTheSky =
    R"(<camera pos="0 -3 3.7" xyaxes="1 0 0 0 .7 .7" projection="orthographic"
        fovy="45"/>
       <geom type="plane" size="0 0 .05"/>
       <geom pos="0 3 2" size=".5"/>)";
const std::string kMarkedMirror =
    std::string(kMarked) +
    R"(<material name="mirrored" texture="t" texrepeat="3 3"
        reflectance=".4"/>)";
const std::string kHillsMirror = std::string(kHills) + kMirror;

INSTANTIATE_TEST_SUITE_P(
    Orthographic, RaycastScenesTest,
    ::testing::Values(
        SceneCase{"shapes", kHills, kParallelRoom.c_str(), 0.6},
        SceneCase{"mirror_box", kHillsMirror.c_str(), kParallelMirror.c_str(),
                  0.6},
        SceneCase{"textures_and_mirror", kMarkedMirror.c_str(),
                  kParallelFloor.c_str(), 0.6},
        SceneCase{"looks_up_from_a_floor", "", kParallelLevel.c_str(), 0.6},
        SceneCase{"sky_and_haze", kSky, kParallelHorizon.c_str(), 0.6},
        SceneCase{"wider_than_the_sky", kSky, kWiderThanTheSky.c_str(), 0.6},
        SceneCase{"beside_the_sky", kNearSky.c_str(), kBesideTheSky.c_str(),
                  1.0}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(RaycastOrthographicTest, TheFreeCameraLooksLikeOpenGl) {
  SuiteModel model = ModelOf(
      "<mujoco><visual><global orthographic='true' fovy='4'/></visual>"
      "<worldbody><light pos='0 -1 3' dir='0 .3 -1'/>" +
      std::string(kFloorAndBall) + "</worldbody></mujoco>");
  RaycastRenderer raycast(*model.model);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  EXPECT_LE(MeanDifference(Draw(raycast, model, -1), Draw(*gl, model, -1)),
            0.5);
}

// A skin over two bodies, and the surface of a soft body.
TEST(RaycastMovingTest, SkinsAndFlexesLookLikeOpenGl) {
  SuiteModel model = ModelOf(R"(
<mujoco>
  <asset>
    <texture name="t" type="2d" builtin="checker" rgb1=".9 .1 .1"
             rgb2=".1 .2 .9" width="64" height="64"/>
    <material name="m" texture="t" texuniform="true"/>
  </asset>
  <deformable>
    <skin name="s" material="m" inflate=".02"
          vertex="-.6 0 0 -.6 0 1 0 .3 0 0 -.3 1 .6 0 0 .6 0 1"
          texcoord="0 0 0 1 1 0 1 1 2 0 2 1"
          face="0 3 1 0 2 3 2 5 3 2 4 5 0 1 3 0 3 2 2 3 5 2 5 4">
      <bone body="left" bindpos="-.6 0 .5" bindquat="1 0 0 0"
            vertid="0 1 2 3" vertweight="1 1 .5 .5"/>
      <bone body="right" bindpos=".6 0 .5" bindquat="1 0 0 0"
            vertid="2 3 4 5" vertweight=".5 .5 1 1"/>
    </skin>
  </deformable>
  <worldbody>
    <light pos="0 -1 3" dir="0 .3 -1"/>
    <camera pos="0 -3 1.5" xyaxes="1 0 0 0 .45 .9"/>
    <geom type="plane" size="3 3 .1" rgba=".6 .6 .6 1"/>
    <body name="left" pos="-.6 0 .7"><freejoint/><geom size=".1"/></body>
    <body name="right" pos=".6 0 .7"><freejoint/><geom size=".1"/></body>
    <flexcomp name="soft" type="grid" dim="3" count="3 3 3" pos="0 1 .8"
              spacing=".3 .3 .3" radius=".01" rgba=".2 .8 .3 1"/>
  </worldbody>
</mujoco>)");
  RaycastRenderer raycast(*model.model);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  for (const int pose : {0, 3}) {
    model.SetPose(pose);
    EXPECT_LE(MeanDifference(Draw(raycast, model, 0), Draw(*gl, model, 0)), 0.6)
        << "pose " << pose;
  }
  // no trace of the pose before
  RaycastRenderer fresh(*model.model);
  EXPECT_EQ(Draw(raycast, model, 0), Draw(fresh, model, 0));
}

TEST(RaycastQualityTest, OneSampleLooksLikeOpenGl) {
  SuiteModel model =
      ModelOf(std::string("<mujoco><visual><quality offsamples='0'/></visual>"
                          "<worldbody>") +
              kCamera + "<light pos='0 -1 3' dir='0 .3 -1'/>" + kFloorAndBall +
              "</worldbody></mujoco>");
  RaycastRenderer raycast(*model.model);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  EXPECT_LE(MeanDifference(Draw(raycast, model, 0), Draw(*gl, model, 0)), 0.5);
}

// Forty cables that hang, each drawn as 31 capsules.
TEST(SceneTest, ASceneHasRoomForSlackTendons) {
  std::string sites, tendons;
  for (int i = 0; i < 40; ++i) {
    sites += fmt::format(
        "<site name='a{0}' pos='{1} 0 1'/><site name='b{0}' pos='{1} .8 1'/>",
        i, 0.05 * i - 1);
    tendons += fmt::format(
        "<spatial limited='true' range='0 1.2'><site site='a{0}'/>"
        "<site site='b{0}'/></spatial>",
        i);
  }
  SuiteModel model =
      ModelOf("<mujoco><worldbody>" + std::string(kCamera) +
              "<light pos='0 -1 3' dir='0 .3 -1'/>" + sites +
              "</worldbody><tendon>" + tendons + "</tendon></mujoco>");
  RaycastRenderer raycast(*model.model);
  const Picture rgb = Draw(raycast, model, 0);
  Scene scene(*model.model);
  scene.Update(*model.model, *model.data, 0).flags[mjRND_SHADOW] = 0;
  EXPECT_GT(scene.Update(*model.model, *model.data, 0).ngeom, 1000);
  EXPECT_EQ(scene.Update(*model.model, *model.data, 0).flags[mjRND_SHADOW], 0);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  EXPECT_LE(MeanDifference(rgb, Draw(*gl, model, 0)), 0.5);
}

// Would catch: infinite planes centred at the camera of the picture before.
TEST(SceneTest, APictureDependsOnNoPictureBefore) {
  SuiteModel model = ModelOf(MjcfOf({"", kMarked, R"(
    <geom type="plane" size="0 0 .1" material="repeated"/>)",
                                     0}));
  RaycastRenderer renderer(*model.model);
  const Picture first = Draw(renderer, model, 0);
  model.model->cam_pos[1] -= 40;
  mj_forward(model.model.get(), model.data.get());
  Draw(renderer, model, 0);
  model.model->cam_pos[1] += 40;
  mj_forward(model.model.get(), model.data.get());
  EXPECT_EQ(Draw(renderer, model, 0), first);
}

}  // namespace
}  // namespace replicant::env
