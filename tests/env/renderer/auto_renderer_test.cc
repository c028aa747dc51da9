#include "env/renderer/auto_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "env/renderer/scene.h"
#include "tests/env/renderer/suite_model.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Picture DrawBy(RendererKind kind, SuiteModel& model) {
  return Draw(*MakeRenderer(*model.model, {.kind = kind}), model, 0);
}

TEST(AutoRendererTest, IsTheRayCasterWhereItCanDraw) {
  SuiteModel model("cheetah");
  EXPECT_EQ(DrawBy(RendererKind::kAuto, model),
            DrawBy(RendererKind::kRaycast, model));
}

// Curved shapes of more parts than the ray caster has room for.
SuiteModel ManySlices() {
  return ModelOf(R"(<mujoco>
    <visual><quality numslices="300"/></visual><worldbody>
    <camera pos="0 0 5"/>
    <geom size=".5" rgba="1 0 0 1"/></worldbody></mujoco>)");
}

TEST(AutoRendererTest, IsOpenGlWhereTheRayCasterCannotDraw) {
  SuiteModel model = ManySlices();
  const Picture expected = DrawBy(RendererKind::kGl, model);
  const auto renderer = MakeRenderer(*model.model, {});
  EXPECT_EQ(Draw(*renderer, model, 0), expected);
  EXPECT_EQ(Draw(*renderer->MakeSibling(*model.model), model, 0), expected);
}

// OpenGL would leave the background out.
TEST(AutoRendererTest, RefusesABackgroundThatOpenGlWouldDraw) {
  SuiteModel model = ManySlices();
  const auto renderer = MakeRenderer(*model.model, {});
  const Picture background(size_t{84} * 84 * 3, 200);
  EXPECT_EQ(replicant::testing::MessageOf<UnsupportedScene>(
                [&] { renderer->SetBackground(background); }),
            "gl: a background picture is drawn by the ray caster only; hint: "
            "renderer raycast");
}

TEST(AutoRendererTest, NamesTheReasonsOfBoth) {
  SuiteModel model = ManySlices();
  EXPECT_THAT(replicant::testing::MessageOf<DeviceError>([&] {
                MakeRenderer(
                    *model.model,
                    {.gl_platform = GlPlatform::kEglDevice, .egl_device = 63});
              }),
              AllOf(HasSubstr("raycast: visual quality of 300 slices"),
                    HasSubstr("; gl: ")));
}

}  // namespace
}  // namespace replicant::env
