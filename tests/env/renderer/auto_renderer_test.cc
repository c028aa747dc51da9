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

TEST(AutoRendererTest, IsOpenGlWhereTheRayCasterCannotDraw) {
  SuiteModel dog("dog");
  const Picture expected = DrawBy(RendererKind::kGl, dog);
  const auto renderer = MakeRenderer(*dog.model, {});
  const auto early_sibling = renderer->MakeSibling(*dog.model);
  EXPECT_EQ(Draw(*renderer, dog, 0), expected);
  EXPECT_EQ(Draw(*renderer, dog, 0), expected);
  EXPECT_EQ(Draw(*early_sibling, dog, 0), expected);
  EXPECT_EQ(Draw(*renderer->MakeSibling(*dog.model), dog, 0), expected);
}

TEST(AutoRendererTest, NamesTheReasonsOfBoth) {
  SuiteModel dog("dog");
  const auto renderer = MakeRenderer(
      *dog.model, {.gl_platform = GlPlatform::kEglDevice, .egl_device = 63});
  EXPECT_THAT(testing::MessageOf<DeviceError>([&] { Draw(*renderer, dog, 0); }),
              AllOf(HasSubstr("raycast: the scene has a skin (object 0)"),
                    HasSubstr("; gl: ")));
}

}  // namespace
}  // namespace replicant::env
