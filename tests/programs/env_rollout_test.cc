// The program env_rollout from the outside: its files and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/safetensors.h"

namespace replicant::env {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kGoldens = REPLICANT_GOLDEN_FOLDER;

CommandResult Rollout(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), REPLICANT_ENV_ROLLOUT);
  return RunCommand({.command = std::move(arguments)},
                    std::chrono::seconds(50));
}

TEST(EnvRolloutTest, WritesWhatDmControlAnswered) {
  const TemporaryFolder folder;
  const auto output = folder.path() / "out.safetensors";
  const auto input = kGoldens / "reacher-hard.safetensors";
  const CommandResult result =
      Rollout({"--task", "reacher-hard", "--input", input, "--output", output});
  ASSERT_TRUE(result.status.ok()) << result.output;
  const SafetensorsReader golden(input);
  const SafetensorsReader ours(output);
  for (const char* name : {"observation", "reward", "discount"}) {
    const HostTensor expected = golden.Read(name);
    const HostTensor actual = ours.Read(name);
    ASSERT_EQ(actual.shape(), expected.shape()) << name;
    for (size_t i = 0; i < expected.Span<double>().size(); ++i) {
      EXPECT_NEAR(actual.Span<double>()[i], expected.Span<double>()[i], 1e-9);
    }
  }
  EXPECT_EQ(ours.Read("step_type").dtype(), DType::kI64);
}

TEST(EnvRolloutTest, DrawsStarts) {
  const TemporaryFolder folder;
  const auto output = folder.path() / "out.safetensors";
  ASSERT_TRUE(Rollout({"--task", "cartpole-balance", "--resets", "7",
                       "--output", output})
                  .status.ok());
  EXPECT_EQ(SafetensorsReader(output).Read("observation").shape(),
            Shape({7, 5}));
}

TEST(EnvRolloutTest, PlaysRandomActions) {
  const CommandResult result =
      Rollout({"--task", "pendulum-swingup", "--random", "1001"});
  EXPECT_TRUE(result.status.ok());
  EXPECT_THAT(result.output, HasSubstr("after 1000 steps, 0 divergences"));
}

TEST(EnvRolloutTest, DrawsEveryStateOfARecording) {
  const TemporaryFolder folder;
  const auto output = folder.path() / "out.safetensors";
  const auto play = [&](const std::string& task) {
    const CommandResult result =
        Rollout({"--task", task, "--input", kGoldens / (task + ".safetensors"),
                 "--output", output, "--render", "raycast", "--height", "20",
                 "--width", "30", "--camera", "-1"});
    EXPECT_TRUE(result.status.ok()) << result.output;
    return SafetensorsReader(output).Read("pixels");
  };
  // escape has a recorded height field
  for (const char* task : {"reacher-hard", "quadruped-escape"}) {
    const HostTensor pixels = play(task);
    EXPECT_EQ(pixels.dtype(), DType::kU8);
    EXPECT_EQ(pixels.shape(), Shape({41, 20, 30, 3}));
    const auto bytes = pixels.Span<uint8_t>();
    const size_t frame = size_t{20} * 30 * 3;
    EXPECT_FALSE(std::equal(bytes.begin(), bytes.begin() + frame,
                            bytes.begin() + 40 * frame));
  }
}

// The frames that ffmpeg decodes from a video, raw.
std::string Decode(const std::filesystem::path& video) {
  return RunCommand({.command = {"ffmpeg", "-loglevel", "error", "-i", video,
                                 "-f", "rawvideo", "-pix_fmt", "rgb24", "-"}},
                    std::chrono::seconds(50))
      .output;
}

TEST(EnvRolloutTest, FilmsRandomActions) {
  const TemporaryFolder folder;
  const auto video = folder.path() / "out.mp4";
  const CommandResult result =
      Rollout({"--task", "reacher-easy", "--random", "9", "--video", video,
               "--height", "33", "--width", "64"});
  if (result.output.find("hint: install the program ffmpeg") !=
      std::string::npos) {
    GTEST_SKIP() << result.output;
  }
  ASSERT_TRUE(result.status.ok()) << result.output;
  // the start and nine steps, the odd side padded
  EXPECT_EQ(Decode(video).size(), size_t{10} * 34 * 64 * 3);
}

// Each ends with exit code 1 and one line.
TEST(EnvRolloutTest, SaysWhatIsWrongWithItsInput) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "out.safetensors";
  const auto error_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--output", output});
    const CommandResult result = Rollout(std::move(arguments));
    EXPECT_EQ(result.status.code, 1);
    return result.output;
  };
  EXPECT_EQ(error_of({"--task", "waker-walk", "--resets", "1"}),
            "env_rollout: task 'waker-walk' is not known; did you mean "
            "'walker-walk'?; hint: `replicant train --list` or `env_rollout "
            "--list` prints all names\n");
  EXPECT_EQ(error_of({"--task", "walker-walk"}),
            "env_rollout: give --task and one of --input, --resets, --random; "
            "hint: --help\n");
  EXPECT_EQ(error_of({"--task", "walker-walk", "--resets", "1", "--mjcf",
                      "/nowhere.xml"}),
            "env_rollout: MJCF: /nowhere.xml: no such file\n");
  // a recording of another task
  const std::string reacher = kGoldens / "reacher-hard.safetensors";
  EXPECT_EQ(error_of({"--task", "walker-walk", "--input", reacher}),
            "env_rollout: " + reacher +
                ": action has shape [40,2], want [steps,6]\n");
  // cameras, sizes, renderers
  const auto render_error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"--task", "reacher-hard", "--input", reacher});
    return error_of(std::move(arguments));
  };
  EXPECT_EQ(render_error({"--render", "raycast", "--camera", "3"}),
            "env_rollout: reacher-hard: no camera '3'; allowed: -1 "
            "(free), 0 fixed, 1 hand\n");
  EXPECT_EQ(render_error({"--render", "raycast", "--height", "9999"}),
            "env_rollout: Renderer: a picture of 9999 x 84 requested; each "
            "side must be in [1, 4096]\n");
  EXPECT_EQ(
      render_error({"--render", "opengl"}),
      "env_rollout: renderer 'opengl' given; allowed: auto, raycast, gl\n");
  EXPECT_EQ(error_of({"--task", "reacher-hard", "--random", "1", "--render",
                      "raycast"}),
            "env_rollout: --render needs --input or --video\n");
  EXPECT_EQ(render_error({"--video", folder.path() / "x.mp4"}),
            "env_rollout: --video needs --random\n");
  EXPECT_FALSE(std::filesystem::exists(output));
}

}  // namespace
}  // namespace replicant::env
