#include "env/recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;

constexpr int kHeight = 48;

CameraOptions Of(const char* camera, int width, int height = kHeight) {
  return {.camera = camera, .height = height, .width = width};
}

std::unique_ptr<Environment> Cheetah() {
  return MakeConfiguredEnvironment(TaskRegistry(SuiteTasks()),
                                   {.name = "cheetah-run"}, /*seed=*/1,
                                   /*index=*/0);
}

TEST(RecorderTest, ShowsCamerasSideBySide) {
  if (std::system("command -v ffmpeg > /dev/null") != 0) {  // NOLINT
    GTEST_SKIP() << "ffmpeg is not installed";
  }
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.mp4";
  const auto environment = Cheetah();
  const std::vector<CameraOptions> cameras = {Of("side", 64), Of("back", 32)};
  Recorder recorder(environment.get(), cameras, file);
  recorder.Record(environment->Reset({}));
  recorder.Finish();
  const CommandResult decoded = RunCommand(
      {.command = {"ffmpeg", "-loglevel", "error", "-i", file.string(), "-f",
                   "rawvideo", "-pix_fmt", "rgb24", "-"}},
      std::chrono::seconds(50));
  constexpr size_t kWidth = 64 + 32;
  ASSERT_EQ(decoded.output.size(), kHeight * kWidth * 3);
  size_t column = 0;
  for (const CameraOptions& options : cameras) {
    Camera camera(environment->physics(), options);
    std::vector<uint8_t> picture(camera.size_bytes());
    camera.Render(environment->mutable_physics(), picture);
    const auto width = static_cast<size_t>(options.width);
    double error = 0.0;
    for (size_t row = 0; row < kHeight; ++row) {
      for (size_t i = 0; i < 3 * width; ++i) {
        const auto got = static_cast<uint8_t>(
            decoded.output[3 * (row * kWidth + column) + i]);
        error += std::abs(got - picture[3 * row * width + i]);
      }
    }
    // lossy, but not by much; another picture is off by 20 and more
    EXPECT_LT(error / static_cast<double>(picture.size()), 8.0)
        << options.camera;
    column += width;
  }
}

TEST(RecorderTest, RefusesCamerasThatDoNotFit) {
  const auto environment = Cheetah();
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              Recorder(environment.get(), {Of("side", 64), Of("back", 64, 32)},
                       "a.mp4");
            }),
            "recorder: cameras of 48 and 32 rows; want one height");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        Recorder(environment.get(), {Of("side", 64), Of("top", 64)}, "a.mp4");
      }),
      "cheetah-run: no camera 'top'; allowed: -1 (free), 0 side, 1 back");
}

}  // namespace
}  // namespace replicant::env
