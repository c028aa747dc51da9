#include "env/renderer/auto_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
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

// A camera that the ray caster does not draw.
SuiteModel Orthographic() {
  return ModelOf(R"(<mujoco><worldbody>
    <camera pos="0 0 5" projection="orthographic" fovy="3"/>
    <geom size=".5" rgba="1 0 0 1"/></worldbody></mujoco>)");
}

TEST(AutoRendererTest, IsOpenGlWhereTheRayCasterCannotDraw) {
  SuiteModel model = Orthographic();
  const Picture expected = DrawBy(RendererKind::kGl, model);
  const auto renderer = MakeRenderer(*model.model, {});
  const auto early_sibling = renderer->MakeSibling(*model.model);
  EXPECT_EQ(Draw(*renderer, model, 0), expected);
  EXPECT_EQ(Draw(*renderer, model, 0), expected);
  EXPECT_EQ(Draw(*early_sibling, model, 0), expected);
  EXPECT_EQ(Draw(*renderer->MakeSibling(*model.model), model, 0), expected);
}

// OpenGL would leave the background out.
TEST(AutoRendererTest, RefusesABackgroundThatOpenGlWouldDraw) {
  SuiteModel model = Orthographic();
  const auto renderer = MakeRenderer(*model.model, {});
  const Picture background(size_t{84} * 84 * 3, 200);
  renderer->SetBackground(background);
  const auto message = [&](const auto& call) {
    return replicant::testing::MessageOf<UnsupportedScene>(call);
  };
  const std::string expected =
      "gl: a background picture is drawn by the ray caster only; hint: "
      "renderer raycast";
  EXPECT_EQ(message([&] { Draw(*renderer, model, 0); }), expected);
  EXPECT_EQ(message([&] { renderer->SetBackground(background); }), expected);
}

TEST(AutoRendererTest, NamesTheReasonsOfBoth) {
  SuiteModel model = Orthographic();
  const auto renderer = MakeRenderer(
      *model.model, {.gl_platform = GlPlatform::kEglDevice, .egl_device = 63});
  EXPECT_THAT(
      replicant::testing::MessageOf<DeviceError>(
          [&] { Draw(*renderer, model, 0); }),
      AllOf(HasSubstr("raycast: an orthographic camera cannot be drawn"),
            HasSubstr("; gl: ")));
}

}  // namespace
}  // namespace replicant::env
