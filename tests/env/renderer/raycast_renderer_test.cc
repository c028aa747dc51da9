#include "env/renderer/raycast/raycast_renderer.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/thread.h"
#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/draw.h"
#include "tests/env/renderer/suite_model.h"

namespace replicant::env {
namespace {

double MeanDifference(const Picture& a, const Picture& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

// Peak signal-to-noise ratio, dB.
double Psnr(const Picture& a, const Picture& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(a[i] - b[i], 2);
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / sum);
}

// A model of one's own in a file of its own.
SuiteModel ModelOf(const std::string& mjcf) {
  const TemporaryFolder folder("raycast_renderer_test");
  const auto path = folder.path() / "model.xml";
  AtomicWriteFile(path, mjcf);
  return SuiteModel(path);
}

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

// What it would catch: a wrong light, shadow, texture phase, mip map, edge,
// mirror or sky; GL against itself with another tessellation differs by 0.05
// to 0.28.
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
                      LikeGl{"hopper", 0.45}, LikeGl{"ball_in_cup", 0.45}),
    [](const auto& test) { return std::string(test.param.domain); });

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
    EXPECT_GE(num_targets, 1);
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

TEST(RaycastRendererTest, NamesWhatItCannotDraw) {
  EXPECT_EQ(
      MessageOf("<mujoco><asset><mesh name='m' vertex='0 0 0 1 0 0 0 1 0 0 0 1'"
                "/></asset><worldbody><geom type='mesh' mesh='m'/></worldbody>"
                "</mujoco>"),
      "raycast: the scene has a mesh (object 0), which cannot be drawn; hint: "
      "use the renderer gl");
  EXPECT_EQ(
      MessageOf("<mujoco><asset><material name='m' reflectance='.5'/></asset>"
                "<worldbody><geom type='box' size='1 1 1' material='m'/>"
                "</worldbody></mujoco>"),
      "raycast: the scene has a box that reflects, which cannot be drawn; "
      "hint: make a plane of it or use the renderer gl");
}

TEST(RendererTest, NamesOfKindsAreReadAndWritten) {
  EXPECT_EQ(ParseRendererKind("gl"), RendererKind::kGl);
  EXPECT_EQ(ParseRendererKind(ToString(RendererKind::kRaycast)),
            RendererKind::kRaycast);
  try {
    ParseRendererKind("vulkan");
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "renderer 'vulkan' given, raycast or gl is allowed");
  }
}

}  // namespace
}  // namespace replicant::env
