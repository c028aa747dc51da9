#include "programs/run/summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "programs/run/learning_curve.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using testing::MessageOf;

class SummaryTest : public ::testing::Test {
 protected:
  void AddEvaluation(double seconds, int64_t step, double mean) {
    evaluation::EvaluationLog(run_, 0.0).Write({.seconds = seconds,
                                                .step = step,
                                                .num_episodes = 10,
                                                .mean = mean,
                                                .standard_deviation = 2.5});
  }

  TemporaryFolder folder_;
  const std::filesystem::path run_ = folder_.path() / "it's a run";
  RunConfig config_ = LoadRunConfig(config::Document::FromText("run.yaml", ""),
                                    Registry::BuiltIn())
                          .config;
};

TEST_F(SummaryTest, SaysWhatIsThereAndHowToGoOn) {
  AddEvaluation(10.0, 100, 5.25);
  AddEvaluation(70.0, 200, 812.0);
  AddEvaluation(130.0, 300, 700.0);
  for (const char* name :
       {"curve.png", "videos/step-000000000100.mp4",
        "videos/step-000000000300.mp4", "videos/.step-000000000400.mp4",
        "checkpoints/step-000000000300/manifest.yaml"}) {
    MakeFolders((run_ / name).parent_path());
    AtomicWriteFile(run_ / name, "x");
  }
  config_.task.name = "walker-walk";
  config_.task.has_pixels = true;
  config_.task.pixels.camera.height = config_.task.pixels.camera.width = 64;
  const std::string run = run_.string();
  const std::string quoted = "'" + folder_.path().string() + "/it'\\''s a run'";
  EXPECT_EQ(
      SummaryTable(config_,
                   {.status = "complete",
                    .reason = "learner-0 has completed the run: step limit",
                    .wall_clock_s = 200.0,
                    .frames = 100000.0,
                    .updates = 300.0,
                    .samples_per_insert = 31.5},
                   evaluation::ReadEvaluations(run_), run_,
                   Commands::InFolder("/bin/x")),
      "task                walker-walk from pixels, 64x64, 3 frames\n"
      "status              complete: learner-0 has completed the run: step "
      "limit\n"
      "wall-clock          3m20s\n"
      "frames              100k (500/s)\n"
      "updates             300 (1.5/s)\n"
      "samples per insert  31.5\n"
      "last return         700.0 +- 2.5 (10 episodes) at step 300, 2m10s\n"
      "best return         812.0 +- 2.5 (10 episodes) at step 200, 1m10s\n"
      "learning curve      " +
          run +
          "/curve.png\n"
          "video               " +
          run +
          "/videos/step-000000000300.mp4\n"
          "checkpoint          " +
          run +
          "/checkpoints/step-000000000300\n"
          "to resume           /bin/x/fleet --resume " +
          quoted +
          "\n"
          "to evaluate         /bin/x/evaluator --checkpoint " +
          quoted + " --episodes 10 --video\n");
}

// Would catch lines that do not find the environment of the run.
TEST_F(SummaryTest, NamesTheFunctionOfAPythonEnvironment) {
  MakeFolders(run_ / "checkpoints/step-000000000300");
  AtomicWriteFile(run_ / "checkpoints/step-000000000300/manifest.yaml", "x");
  ::setenv("REPLICANT_MAKE_ENV", "/my robot.py:make", /*overwrite=*/1);
  const auto summary = [&](const std::string& task) {
    config_.task.name = task;
    return SummaryTable(
        config_,
        {.status = "complete", .reason = "time limit", .wall_clock_s = 20.0},
        {}, run_, Commands::InFolder("/bin/x"));
  };
  const std::string own = summary("python-environment");
  const std::string other = summary("walker-walk");
  ::unsetenv("REPLICANT_MAKE_ENV");
  for (const char* const line : {"to resume", "to evaluate"}) {
    const std::string start = fmt::format(
        "{:<18}  REPLICANT_MAKE_ENV='/my robot.py:make' /bin/x/", line);
    EXPECT_NE(own.find(start), std::string::npos) << own;
  }
  EXPECT_EQ(own.find("--video"), std::string::npos) << own;
  EXPECT_EQ(other.find("REPLICANT_MAKE_ENV"), std::string::npos) << other;
}

TEST_F(SummaryTest, SaysSinceWhenAResumedRunCounts) {
  MakeFolders(run_);
  EXPECT_EQ(SummaryTable(config_,
                         {.status = "complete",
                          .reason = "time limit",
                          .resumed_at = 300,
                          .wall_clock_s = 20.0,
                          .updates = 40.0},
                         {}, run_, Commands::InFolder("/bin/x")),
            "task                cartpole-swingup from state\n"
            "status              complete: time limit\n"
            "wall-clock          20s since step 300, where it was resumed\n"
            "updates             40 (2/s)\n");
}

TEST_F(SummaryTest, LeavesOutWhatIsNotKnown) {
  MakeFolders(run_);
  // what a full disk leaves of a curve
  AtomicWriteFile(run_ / "curve.png", "");
  EXPECT_EQ(SummaryTable(config_,
                         {.status = "stopped",
                          .reason = "stopped by a signal",
                          .wall_clock_s = 3.0},
                         {}, run_, Commands::InFolder("/bin/x")),
            "task                cartpole-swingup from state\n"
            "status              stopped: stopped by a signal\n"
            "wall-clock          3s\n");
}

// PNG, "IHDR", width 960, height 540.
constexpr const char* kPng =
    "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x03\xc0\x00\x00\x02\x1c";

TEST_F(SummaryTest, DrawsALearningCurve) {
  if (std::system("command -v gnuplot > /dev/null") != 0) {  // NOLINT
    GTEST_SKIP() << "gnuplot is not installed";
  }
  AddEvaluation(10.0, 100, 5.25);
  AddEvaluation(70.0, 200, 812.0);
  const auto file = run_ / "curve.png";
  DrawLearningCurve(evaluation::ReadEvaluations(run_), "walker's walk", file);
  EXPECT_EQ(ReadFile(file).substr(0, 24), std::string(kPng, 24));
  // one point, and a return that is no number, make a picture too
  DrawLearningCurve({{.mean = std::nan("")}, {.seconds = 60.0, .mean = 5.0}},
                    "x", file);
  DrawLearningCurve({{.mean = 5.0}}, "x", file);
  DrawLearningCurve({{.seconds = 1.0, .frames = 0, .mean = 5.0},
                     {.seconds = 70.0, .frames = 123456, .mean = 7.0}},
                    "x", file);
}

TEST_F(SummaryTest, SaysWhyThereIsNoCurve) {
  const auto file = folder_.path() / "none" / "curve.png";
  const std::string refused = MessageOf<IoError>(
      [&] { DrawLearningCurve({{.mean = 5.0}}, "x", file); });
  EXPECT_EQ(refused.find("learning curve " + file.string() + ": "), 0U)
      << refused;
  const std::string path = std::getenv("PATH");  // NOLINT
  ::setenv("PATH", folder_.path().c_str(), /*overwrite=*/1);
  const std::string missing = MessageOf<IoError>(
      [&] { DrawLearningCurve({{.mean = 5.0}}, "x", file); });
  ::setenv("PATH", path.c_str(), /*overwrite=*/1);
  EXPECT_NE(
      missing.find("hint: it is drawn by the program gnuplot, install it"),
      std::string::npos)
      << missing;
}

}  // namespace
}  // namespace replicant::programs
