#include "env/renderer/gl_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "tests/env/renderer/suite_model.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

constexpr int kHeight = 84;
constexpr int kWidth = 84;
constexpr size_t kBytes = size_t{3} * kHeight * kWidth;

struct Case {
  std::string domain;
  int camera;
  int pose;
};

// Every kind of geom, light, texture and camera of the suite that stays whole
// when its model is loaded without the tasks' edits.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"cartpole", 0, 1},    {"cheetah", 0, 2},      {"walker", 0, 3},
      {"humanoid", 0, 4},    {"reacher", 0, 5},      {"finger", 0, 6},
      {"hopper", 0, 7},      {"ball_in_cup", 0, 8},  {"acrobot", 0, 9},
      {"pendulum", 0, 1},    {"point_mass", 0, 2},   {"fish", 0, 3},
      {"manipulator", 0, 4}, {"stacker", 0, 5},      {"quadruped", 0, 6},
      {"swimmer", 0, 7},     {"humanoid_CMU", 0, 8}, {"dog", 0, 9},
      {"cheetah", -1, 1},
  };
  return cases;
}

class GlRendererTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      GlContext::Make(GlPlatform::kOsMesa, 0);
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

// Would catch: another anti-aliasing, shadow map, visual option, row order or
// context than dm_control's.
TEST_F(GlRendererTest, EqualsDmControlToTheBit) {
  const TemporaryFolder folder("gl_renderer_test");
  const std::string pictures = folder.path() / "pictures";
  ProcessOptions oracle{
      .command = {REPLICANT_PYTHON, REPLICANT_RENDER_ORACLE, pictures,
                  std::to_string(kHeight), std::to_string(kWidth)},
      .environment = {"MUJOCO_GL=osmesa", "LP_NUM_THREADS=0"}};
  for (const Case& c : Cases()) {
    oracle.command.push_back(SuiteFolder() / (c.domain + ".xml"));
    oracle.command.push_back(std::to_string(c.camera));
    oracle.command.push_back(std::to_string(c.pose));
  }
  const CommandResult result =
      RunCommand(oracle, /*timeout=*/std::chrono::seconds(600));
  ASSERT_TRUE(result.status.ok()) << result.output;
  const std::string expected = ReadFile(pictures);
  ASSERT_EQ(expected.size(), Cases().size() * kBytes);

  for (size_t i = 0; i < Cases().size(); ++i) {
    const Case& c = Cases()[i];
    SuiteModel model(c.domain);
    model.SetPose(c.pose);
    GlRenderer renderer(*model.model, GlPlatform::kOsMesa, 0);
    const Picture rgb = Draw(renderer, model, c.camera);
    size_t differing = 0;
    for (size_t k = 0; k < kBytes; ++k) {
      differing += rgb[k] != static_cast<uint8_t>(expected[i * kBytes + k]);
    }
    EXPECT_EQ(differing, 0u) << c.domain << ", camera " << c.camera;
  }
}

TEST_F(GlRendererTest, TwoRenderersTakeTurnsOnOneThread) {
  SuiteModel cartpole("cartpole");
  SuiteModel reacher("reacher");
  GlRenderer first(*cartpole.model, GlPlatform::kAuto, 0);
  const auto alone = Draw(first, cartpole, 0);
  GlRenderer second(*reacher.model, GlPlatform::kAuto, 0);
  EXPECT_NE(Draw(second, reacher, 0), alone);
  EXPECT_EQ(Draw(first, cartpole, 0), alone);
}

TEST_F(GlRendererTest, DrawsPicturesLargerThanTheModelsBuffer) {
  SuiteModel model("cartpole");
  ASSERT_LT(model.model->vis.global.offheight, 500);
  GlRenderer renderer(*model.model, GlPlatform::kOsMesa, 0);
  std::vector<uint8_t> rgb(size_t{3} * 500 * 700);
  renderer.Render(*model.model, *model.data, 0, 500, 700, rgb);
  // the sky of the topmost row: nothing was cut off
  EXPECT_NE(std::vector<uint8_t>(rgb.begin(), rgb.begin() + 3 * 700),
            std::vector<uint8_t>(size_t{3} * 700));
}

TEST_F(GlRendererTest, RefusesWhatItCannotDraw) {
  SuiteModel model("cartpole");
  GlRenderer renderer(*model.model, GlPlatform::kOsMesa, 0);
  std::vector<uint8_t> rgb(kBytes);
  const auto message = [&](int camera, int height, int width) {
    try {
      renderer.Render(*model.model, *model.data, camera, height, width, rgb);
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
    return std::string("no exception");
  };
  EXPECT_EQ(message(2, kHeight, kWidth),
            "Renderer: camera 2 given; allowed: -1 (free) to 1");
  EXPECT_EQ(message(0, 0, kWidth),
            "Renderer: a picture of 0 x 84 requested; each side must be in [1, "
            "4096]");
  EXPECT_EQ(message(0, kHeight, 64),
            "Renderer: 21168 bytes given for a picture of 84 x 64 x 3, which "
            "needs 16128");
}

TEST_F(GlRendererTest, OneProcessUsesOnePlatform) {
  try {
    GlContext::Make(GlPlatform::kEglSurfaceless, 0);
    FAIL() << "no DeviceError";
  } catch (const DeviceError& e) {
    EXPECT_STREQ(e.what(),
                 "OpenGL: platform egl-surfaceless requested, but this process "
                 "uses osmesa; hint: all renderers of a process share one "
                 "platform");
  }
}

TEST(GlPlatformTest, NamesAreReadAndWritten) {
  for (const auto platform :
       {GlPlatform::kAuto, GlPlatform::kOsMesa, GlPlatform::kEglDevice,
        GlPlatform::kEglSurfaceless}) {
    EXPECT_EQ(ParseGlPlatform(ToString(platform)), platform);
  }
  try {
    ParseGlPlatform("glx");
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "OpenGL platform 'glx' given; allowed: auto, osmesa, egl, "
                 "egl-surfaceless");
  }
}

// On a machine without a GPU, Mesa's software renderer is EGL's only device.
class EglDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      GlContext::Make(GlPlatform::kEglDevice, 0);
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_F(EglDeviceTest, TheFirstDeviceDraws) {
  SuiteModel model("cartpole");
  model.SetPose(1);
  GlRenderer renderer(*model.model, GlPlatform::kEglDevice, 0);
  const Picture first = Draw(renderer, model, 0);
  EXPECT_EQ(Draw(renderer, model, 0), first);
  // catches a context that draws nothing
  EXPECT_NE(first, Picture(first.size(), first[0]));
}

TEST_F(EglDeviceTest, ADeviceThatIsNotThereNamesThoseThatAre) {
  EXPECT_THAT(
      replicant::testing::MessageOf<DeviceError>(
          [] { GlContext::Make(GlPlatform::kEglDevice, 63); }),
      ::testing::MatchesRegex("OpenGL: egl_device 63 given; allowed: 0 to "
                              "[0-9]+, the devices that EGL lists"));
}

}  // namespace
}  // namespace replicant::env
