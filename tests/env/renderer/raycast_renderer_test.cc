#include "env/renderer/raycast/raycast_renderer.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/thread.h"
#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/draw.h"
#include "tests/env/renderer/suite_model.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

// Calls `check` once per instruction set that this processor has, with Draw()
// limited to it.
template <typename Check>
void ForEachTarget(const Check& check) {
  const int64_t targets = hwy::SupportedTargets() & raycast::CompiledTargets();
  for (int64_t rest = targets; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

struct LikeGl {
  const char* domain;
  double mean_difference;
};
std::ostream& operator<<(std::ostream& out, const LikeGl& limit) {
  return out << limit.domain;
}

class LikeGlTest : public ::testing::TestWithParam<LikeGl> {};

// Would catch: a wrong light, shadow, texture phase, mip map, edge, mirror or
// sky; GL against itself with another tessellation differs by 0.05 to 0.28.
TEST_P(LikeGlTest, PicturesLookLikeOpenGl) {
  SuiteModel model(GetParam().domain);
  RaycastRenderer raycast(*model.model);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  for (int pose = 0; pose < 4; ++pose) {
    model.SetPose(pose);
    const Picture expected = Draw(*gl, model, 0);
    const Picture rgb = Draw(raycast, model, 0);
    EXPECT_LE(MeanDifference(rgb, expected), GetParam().mean_difference)
        << "pose " << pose;
    EXPECT_GE(Psnr(rgb, expected), 42.0) << "pose " << pose;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Suite, LikeGlTest,
    ::testing::Values(LikeGl{"cartpole", 0.45}, LikeGl{"cheetah", 0.45},
                      LikeGl{"walker", 0.45}, LikeGl{"humanoid", 0.45},
                      LikeGl{"reacher", 0.5}, LikeGl{"finger", 0.45},
                      LikeGl{"hopper", 0.45}, LikeGl{"ball_in_cup", 0.45},
                      LikeGl{"dog", 0.6}),
    [](const auto& test) { return std::string(test.param.domain); });

// Two meshes with and without texture, one smooth, a height field, a box with a
// cube texture, on a mirror, with sky and shadow.
constexpr const char* kAssetScene = R"(
<mujoco>
  <asset>
    <mesh name="solid" vertex="0 0 0 .4 0 0 0 .4 0 0 0 .4 .3 .3 .3"/>
    <mesh name="ball" builtin="sphere" params="3" scale=".3 .3 .3"/>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".4 .6 .8"
             rgb2="0 0 0" width="100" height="600"/>
    <texture name="cube" type="cube" builtin="checker" rgb1=".8 .2 .2"
             rgb2=".2 .2 .8" width="60" height="360"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".1 .2 .3"
             rgb2=".2 .3 .4" width="300" height="300"/>
    <material name="cube" texture="cube"/>
    <material name="grid" texture="grid" texuniform="true" reflectance=".2"/>
    <hfield name="hills" nrow="3" ncol="4" size=".5 .5 .3 .1"
            elevation="0 .1 .2 .3 .4 .9 .6 .1 .8 .2 .9 .1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3"/>
    <geom type="plane" size="3 3 .2" material="grid"/>
    <geom type="mesh" mesh="solid" pos=".3 0 .3" rgba=".7 .5 .3 1"/>
    <geom type="mesh" mesh="ball" pos="0 -.6 .6" rgba=".8 .8 .2 1"/>
    <geom type="mesh" mesh="solid" pos="1 .5 .6" material="cube"/>
    <geom type="box" size=".2 .2 .2" pos="1 -.6 .6" material="cube"
          euler="20 30 40"/>
    <geom type="hfield" hfield="hills" pos="-1 0 .15" rgba=".3 .6 .3 1"/>
    <camera pos="0 -3 2" xyaxes="1 0 0 0 .5 .8"/>
  </worldbody>
</mujoco>)";

TEST(RaycastRendererTest, MeshesHeightFieldsAndCubeTexturesLookLikeOpenGl) {
  SuiteModel model = ModelOf(kAssetScene);
  RaycastRenderer raycast(*model.model);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  const Picture expected = Draw(*gl, model, 0);
  const Picture rgb = Draw(raycast, model, 0);
  EXPECT_LE(MeanDifference(rgb, expected), 0.6);
  EXPECT_GE(Psnr(rgb, expected), 38.0);
}

// Would catch: one colour for all samples of a pixel that see different
// triangles.
TEST(RaycastRendererTest, TerrainFinerThanPixelsLooksLikeOpenGl) {
  SuiteModel model = ModelOf(R"(
<mujoco>
  <asset>
    <hfield name="hills" nrow="150" ncol="150" size="2 2 .3 .1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3" dir="0 .2 -1" castshadow="false"/>
    <geom type="hfield" hfield="hills" rgba=".3 .6 .3 1"/>
    <camera pos="0 -3 2" xyaxes="1 0 0 0 .5 .8"/>
  </worldbody>
</mujoco>)");
  for (int i = 0; i < 150 * 150; ++i) {
    model.model->hfield_data[i] = static_cast<float>(i * i % 7) / 14.0f;
  }
  RaycastRenderer raycast(*model.model);
  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  EXPECT_LE(MeanDifference(Draw(raycast, model, 0), Draw(*gl, model, 0)), 0.5);
}

#if mjVERSION_HEADER >= 4000000

std::string SceneOfBoxes(const std::string& second) {
  return R"(
<mujoco>
  <worldbody>
    <light pos="0 0 3" dir="0 .2 -1"/>
    <geom type="plane" size="3 3 .2"/>
    <geom type="box" size=".2 .2 .2" pos="-.5 0 .8" rgba=".8 .3 .3 1"/>
    <geom type="box" size=".2 .2 .2" pos=".5 0 .8" rgba=".3 .8 .3 1" )" +
         second + R"(/>
    <camera pos="0 -3 2" xyaxes="1 0 0 0 .5 .8"/>
  </worldbody>
</mujoco>)";
}

TEST(RaycastRendererTest, AGeomWithoutShadowCastsNone) {
  SuiteModel model = ModelOf(SceneOfBoxes(R"(castshadow="false")"));
  SuiteModel shadowed = ModelOf(SceneOfBoxes(""));
  RaycastRenderer raycast(*model.model);
  const Picture rgb = Draw(raycast, model, 0);
  RaycastRenderer raycast_shadowed(*shadowed.model);
  EXPECT_GT(MeanDifference(rgb, Draw(raycast_shadowed, shadowed, 0)), 0.5);

  std::unique_ptr<GlRenderer> gl;
  try {
    gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  EXPECT_LE(MeanDifference(rgb, Draw(*gl, model, 0)), 0.5);
}

// active: 0 no headlight, 1 always, 2 auto
TEST(RaycastRendererTest, EachKindOfHeadlightLooksLikeOpenGl) {
  for (const char* active : {"false", "true", "auto"}) {
    for (const char* light : {"", R"(<light pos="0 0 3" dir="0 .2 -1"/>)"}) {
      SCOPED_TRACE(std::string(active) + light);
      SuiteModel model =
          ModelOf(std::string(R"(
<mujoco><visual><headlight active=")") +
                  active + R"("/></visual><worldbody>)" + light + R"(
    <geom type="plane" size="3 3 .2"/>
    <geom type="box" size=".2 .2 .2" pos="0 0 .8" rgba=".8 .3 .3 1"/>
    <camera pos="0 -3 2" xyaxes="1 0 0 0 .5 .8"/>
  </worldbody></mujoco>)");
      RaycastRenderer raycast(*model.model);
      std::unique_ptr<GlRenderer> gl;
      try {
        gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
      } catch (const DeviceError& e) {
        GTEST_SKIP() << e.what();
      }
      EXPECT_LE(MeanDifference(Draw(raycast, model, 0), Draw(*gl, model, 0)),
                0.5);
    }
  }
}

#endif

TEST(RaycastRendererTest, AChangedHeightFieldIsSeenAfterReloading) {
  SuiteModel model = ModelOf(kAssetScene);
  RaycastRenderer renderer(*model.model);
  const Picture before = Draw(renderer, model, 0);
  for (int i = 0; i < 12; ++i) model.model->hfield_data[i] = 0;
  EXPECT_EQ(Draw(renderer, model, 0), before);
  renderer.ReloadAssets(*model.model);
  const Picture after = Draw(renderer, model, 0);
  EXPECT_NE(after, before);
  RaycastRenderer fresh(*model.model);
  EXPECT_EQ(Draw(fresh, model, 0), after);
}

TEST(RaycastRendererTest, ASiblingDrawsTheSameAndKeepsItsOwnChanges) {
  SuiteModel model = ModelOf(kAssetScene);
  RaycastRenderer first(*model.model);
  const Picture before = Draw(first, model, 0);
  const auto sibling = first.MakeSibling(*model.model);
  EXPECT_EQ(Draw(*sibling, model, 0), before);

  // another texture and terrain, for the sibling alone
  for (int i = 0; i < 12; ++i) model.model->hfield_data[i] = 0;
  const int sky = 0;
  ASSERT_EQ(model.model->tex_type[sky], mjTEXTURE_SKYBOX);
  model.model->tex_data[model.model->tex_adr[sky]] = 255;
  sibling->ReloadAssets(*model.model);
  RaycastRenderer fresh(*model.model);
  EXPECT_NE(Draw(fresh, model, 0), before);
  EXPECT_EQ(Draw(*sibling, model, 0), Draw(fresh, model, 0));
  EXPECT_EQ(Draw(first, model, 0), before);
}

// Recorded on one processor; all others must give the same.
TEST(RaycastRendererTest, PicturesAreTheSameOnEveryMachine) {
  const auto checksum = [](SuiteModel model) {
    RaycastRenderer renderer(*model.model);
    const Picture rgb = Draw(renderer, model, 0);
    return Crc32c(std::as_bytes(std::span(rgb)));
  };
  EXPECT_EQ(checksum(SuiteModel("cheetah")), 397599690u);
  EXPECT_EQ(checksum(SuiteModel("humanoid")), 2534942299u);
  EXPECT_EQ(checksum(ModelOf(kAssetScene)), 1704905375u);
}

TEST(RaycastRendererTest, EveryInstructionSetGivesTheSameBits) {
  for (const char* domain : {"cheetah", "humanoid", "manipulator", "lqr"}) {
    SCOPED_TRACE(domain);
    SuiteModel model(domain);
    model.SetPose(3);
    Picture first;
    int num_targets = 0;
    ForEachTarget([&](int64_t) {
      RaycastRenderer renderer(*model.model);
      // 50 pixels are no whole number of vectors
      const Picture rgb = Draw(renderer, model, 0, 40, 50);
      if (num_targets++ == 0) first = rgb;
      EXPECT_EQ(rgb, first);
    });
    EXPECT_GE(num_targets, 2);
  }
  const std::string perspective = kAssetScene;
  const std::string camera = R"(0 0 .5 .8")";
  const std::string orthographic =
      std::string(perspective)
          .replace(perspective.find(camera), camera.size(),
                   camera + R"( projection="orthographic" fovy="3")");
  for (const std::string& mjcf : {perspective, orthographic}) {
    SuiteModel assets = ModelOf(mjcf);
    Picture first;
    ForEachTarget([&](int64_t) {
      RaycastRenderer renderer(*assets.model);
      const Picture rgb = Draw(renderer, assets, 0, 40, 50);
      if (first.empty()) first = rgb;
      EXPECT_EQ(rgb, first);
    });
  }
}

TEST(RaycastRendererTest, ThreadsDrawTheSameBits) {
  SuiteModel model("walker");
  RaycastRenderer renderer(*model.model);
  const Picture alone = Draw(renderer, model, 0);
  std::vector<Picture> pictures(2);
  {
    std::vector<std::unique_ptr<Thread>> threads;
    threads.reserve(pictures.size());
    for (Picture& picture : pictures) {
      threads.push_back(std::make_unique<Thread>(
          "draw", [&picture](const Thread::StopToken&) {
            SuiteModel own("walker");
            RaycastRenderer own_renderer(*own.model);
            for (int i = 0; i < 3; ++i) picture = Draw(own_renderer, own, 0);
          }));
    }
    for (auto& thread : threads) thread->Join();
  }
  EXPECT_EQ(pictures[0], alone);
  EXPECT_EQ(pictures[1], alone);
}

// A picture must not depend on what the renderer drew before: another pose,
// size or camera, a kept sky.
TEST(RaycastRendererTest, APictureDependsOnNothingBeforeIt) {
  SuiteModel model("humanoid");
  RaycastRenderer fresh(*model.model);
  model.SetPose(5);
  const Picture expected = Draw(fresh, model, 0);
  RaycastRenderer used(*model.model);
  for (const int camera : {1, -1, 0}) Draw(used, model, camera);
  Draw(used, model, 0, 33, 120);
  model.SetPose(2);
  Draw(used, model, 0);
  model.SetPose(5);
  EXPECT_EQ(Draw(used, model, 0), expected);
}

TEST(RaycastRendererTest, DrawsTheSmallestAndOddPictures) {
  SuiteModel model("cartpole");
  RaycastRenderer renderer(*model.model);
  for (const auto& [height, width] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 17}, {17, 1}, {3, 65}}) {
    const Picture rgb = Draw(renderer, model, 0, height, width);
    EXPECT_NE(rgb, Picture(rgb.size())) << height << " x " << width;
  }
}

std::string MessageOf(const std::string& mjcf) {
  try {
    SuiteModel model = ModelOf(mjcf);
    RaycastRenderer renderer(*model.model);
    Draw(renderer, model, -1);
  } catch (const UnsupportedScene& e) {
    return e.what();
  }
  return "no exception";
}

// Where a black and a white background give the same, the scene is seen, and
// the sky's picture is the same there; elsewhere the background is, in parts at
// edges. With the haze that lies over the sky, and a picture that no vector
// fits.
TEST(RaycastRendererTest, ABackgroundStandsInThePlaceOfTheSky) {
  constexpr int kHeight = 50, kWidth = 83;
  for (const char* domain : {"cartpole", "walker", "finger"}) {
    SCOPED_TRACE(domain);
    SuiteModel model(domain);
    RaycastRenderer renderer(*model.model);
    ForEachTarget([&](int64_t /*target*/) {
      const auto draw = [&](const Picture& background) {
        renderer.SetBackground(background);
        return Draw(renderer, model, 0, kHeight, kWidth);
      };
      const Picture sky = draw({});
      Picture black(sky.size(), 0), white(sky.size(), 255), mixed(sky.size());
      for (size_t i = 0; i < mixed.size(); ++i) {
        mixed[i] = static_cast<uint8_t>(i * 37);
      }
      const Picture on_black = draw(black), on_white = draw(white);
      const Picture on_mixed = draw(mixed);
      size_t num_clear = 0, num_hidden = 0;
      for (size_t i = 0; i < sky.size(); ++i) {
        if (on_black[i] == on_white[i]) {
          ++num_hidden;
          EXPECT_EQ(on_mixed[i], sky[i]) << i;
        } else if (on_black[i] == 0 && on_white[i] == 255) {
          ++num_clear;
          EXPECT_EQ(on_mixed[i], mixed[i]) << i;
        }
      }
      EXPECT_GT(num_clear, sky.size() / 20);
      EXPECT_GT(num_hidden, sky.size() / 20);
      EXPECT_EQ(draw({}), sky) << "the sky comes back";
    });
  }
}

TEST(RaycastRendererTest, ABackgroundOfAnotherSizeIsRefused) {
  SuiteModel model("cartpole");
  RaycastRenderer renderer(*model.model);
  const Picture background(30);
  renderer.SetBackground(background);
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>(
                [&] { Draw(renderer, model, 0, 4, 4); }),
            "Renderer: a background of 30 bytes for a picture of 4 x 4 x 3, "
            "which needs 48");
}

TEST(RaycastRendererTest, NamesWhatItCannotDraw) {
  EXPECT_EQ(MessageOf("<mujoco><visual><quality numslices='300'/></visual>"
                      "<worldbody><geom size='1'/></worldbody></mujoco>"),
            "raycast: visual quality of 300 slices, 16 stacks and 4 quads "
            "given; allowed: 3 to 256, 2 to 256 and at least 1");
}

// A geom with a texture of 48 x 48 texels in four channels, of which a part is
// transparent; one light casts shadow, the other none.
SuiteModel TransparentTexels(const std::string& geom) {
  SuiteModel model = ModelOf(
      "<mujoco><asset><texture name='t' type='2d' builtin='flat' width='64' "
      "height='48'/><material name='m' texture='t' texrepeat='2 2'/>"
      "<mesh name='mapped' vertex='-.6 -.6 -.6 .6 -.6 -.6 0 .6 -.6 0 0 .7' "
      "face='0 2 1 0 1 3 1 2 3 2 0 3' texcoord='0 0 1 0 0 1 1 1'/></asset>"
      "<worldbody><light pos='0 -1 3' dir='0 .3 -1'/>"
      "<light pos='2 -1 2' dir='-1 .3 -1' castshadow='false' "
      "diffuse='.3 .3 .3'/><camera pos='0 -3 1.5' xyaxes='1 0 0 0 .45 .9'/>"
      "<geom type='plane' size='4 4 .1' pos='0 0 -.5' rgba='.2 .5 .3 1'/>" +
      geom + "</worldbody></mujoco>");
  model.model->tex_nchannel[0] = 4;
  model.model->tex_width[0] = 48;
  mjtByte* at = model.model->tex_data;
  for (int y = 0; y < 48; ++y) {
    for (int x = 0; x < 48; ++x, at += 4) {
      at[0] = static_cast<mjtByte>(5 * x);
      at[1] = static_cast<mjtByte>(5 * y);
      at[2] = 128;
      at[3] = static_cast<mjtByte>(x < 16 ? 255 : (x < 32 ? 100 : 5 * y));
    }
  }
  return model;
}

TEST(RaycastRendererTest, TransparentTexelsLookLikeOpenGl) {
  constexpr const char* kClearPlane =
      "<geom type='plane' size='2 2 .1' pos='0 0 .5' material='m' "
      "rgba='1 1 1 .7'/>";
  for (const char* geom :
       {"<geom type='box' size='.6 .6 .6' material='m'/>",
        "<geom type='plane' size='2 2 .1' material='m'/>",
        "<geom type='mesh' mesh='mapped' material='m'/>",
        "<geom size='.6' material='m' rgba='1 1 1 .7'/>", kClearPlane}) {
    SCOPED_TRACE(geom);
    SuiteModel model = TransparentTexels(geom);
    std::unique_ptr<GlRenderer> gl;
    try {
      gl = std::make_unique<GlRenderer>(*model.model, GlPlatform::kOsMesa, 0);
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
    RaycastRenderer raycast(*model.model);
    const Picture rgb = Draw(raycast, model, 0);
    EXPECT_LE(MeanDifference(rgb, Draw(*gl, model, 0)), 0.6);

    // without them the picture is another one
    for (int i = 0; i < 48 * 48; ++i) model.model->tex_data[4 * i + 3] = 255;
    raycast.ReloadAssets(*model.model);
    EXPECT_GT(MeanDifference(Draw(raycast, model, 0), rgb), 1.5);
  }
}

TEST(RendererTest, NamesOfKindsAreReadAndWritten) {
  for (const RendererKind kind :
       {RendererKind::kAuto, RendererKind::kRaycast, RendererKind::kGl}) {
    EXPECT_EQ(ParseRendererKind(ToString(kind)), kind);
  }
  try {
    ParseRendererKind("vulkan");
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "renderer 'vulkan' given; allowed: auto, raycast, gl");
  }
}

}  // namespace
}  // namespace replicant::env
