#include "evaluation/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "agents/d4pg/agent.h"
#include "base/config/load.h"
#include "base/fs.h"
#include "base/process.h"
#include "env/tasks/suite.h"
#include "evaluation/evaluation_config.h"
#include "evaluation/evaluator.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::evaluation {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::MessageOf;

// 1000 control steps of the task in 10 agent steps.
Evaluator::Options Cartpole(int64_t episodes = 3) {
  return {.task = {.name = "cartpole-balance", .action_repeat = 100},
          .agent = agents::d4pg::MakeAgent(
              {.networks = {.policy_hidden_sizes = {8}}}),
          .evaluation = {.episodes = episodes,
                         .video = {.height = 24, .width = 32}},
          .backend = "reference"};
}

Evaluator MakeEvaluator(const Evaluator::Options& options) {
  return Evaluator(env::TaskRegistry(env::SuiteTasks()), options);
}

bool GoOn() { return false; }

TEST(EvaluationResultTest, SumsTheEpisodesUp) {
  const EvaluationResult result = {.returns = {1.0, 4.0, 7.0},
                                   .lengths = {10, 20, 30}};
  EXPECT_EQ(result.Mean(), 4.0);
  EXPECT_EQ(result.StandardDeviation(), 3.0);
  EXPECT_EQ(result.Min(), 1.0);
  EXPECT_EQ(result.Max(), 7.0);
  EXPECT_EQ(result.MeanLength(), 20.0);
  const EvaluationResult one = {.returns = {5.0}, .lengths = {1}};
  EXPECT_EQ(one.StandardDeviation(), 0.0);
}

// A curve compares policies only if every point has the same first states.
TEST(EvaluatorTest, EveryEvaluationHasTheSameEpisodes) {
  Evaluator evaluator = MakeEvaluator(Cartpole());
  const auto first = evaluator.Run("", GoOn);
  const auto second = evaluator.Run("", GoOn);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->result.returns, second->result.returns);
  // but not all from one state
  EXPECT_NE(first->result.Min(), first->result.Max());
  EXPECT_THAT(first->result.lengths, Each(10));

  Evaluator::Options other = Cartpole();
  other.evaluation.seed = 7;
  EXPECT_NE(MakeEvaluator(other).Run("", GoOn)->result.returns,
            first->result.returns);
}

// The Control Suite's return, however the rewards of an agent step are taken
// together.
TEST(EvaluatorTest, ReturnsAreSumsOverControlSteps) {
  Evaluator::Options mean = Cartpole();
  // the last of four steps has 100 of the 1000 control steps
  mean.task.action_repeat = 300;
  Evaluator::Options sum = mean;
  sum.task.action_repeat_reward = env::RewardReduction::kSum;
  const auto means = MakeEvaluator(mean).Run("", GoOn)->result.returns;
  const auto sums = MakeEvaluator(sum).Run("", GoOn)->result.returns;
  ASSERT_EQ(means.size(), sums.size());
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(means[i], sums[i], 1e-6);
  EXPECT_GT(means[0], 100.0);
}

// A curriculum by the number of an episode is for actors: evaluations, whose
// numbers are small, compare policies on the whole task.
TEST(EvaluatorTest, ACurriculumIsAtItsEnd) {
  const auto returns = [](int64_t ramp_episodes) {
    Evaluator::Options options = Cartpole();
    options.task.randomization = {{.fields = {"gravity"},
                                   .parameters = {3.0, 3.0},
                                   .columns = {2},
                                   .ramp_episodes = ramp_episodes}};
    return MakeEvaluator(options).Run("", GoOn)->result.returns;
  };
  EXPECT_EQ(returns(1000), returns(0));
  EXPECT_NE(returns(0),
            MakeEvaluator(Cartpole()).Run("", GoOn)->result.returns);
}

// Would catch an evaluation that never ends.
TEST(EvaluatorTest, AnEpisodeWithoutEndIsCutOffAndTheLastOne) {
  const replicant::testing::LogLines lines;
  Evaluator::Options options = Cartpole();
  options.evaluation.max_episode_steps = 450;
  const bool has_ffmpeg =
      std::system("command -v ffmpeg > /dev/null") == 0;  // NOLINT
  const TemporaryFolder folder;
  const auto film = folder.path() / "cut.mp4";
  const auto cut =
      MakeEvaluator(options).Run(has_ffmpeg ? film.string() : "", GoOn);
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->result.is_cut);
  EXPECT_EQ(cut->result.lengths, std::vector<int64_t>{5});
  EXPECT_EQ(cut->video_problem, "");
  EXPECT_EQ(std::filesystem::exists(film), has_ffmpeg);
  ASSERT_EQ(lines.lines().size(), 1U);
  EXPECT_EQ(lines.lines()[0],
            "cartpole-balance: episode 0 of an evaluation had no end after 450 "
            "control steps (evaluation.max_episode_steps) and is cut off "
            "there; hint: give the environment a time limit, such as "
            "gymnasium.wrappers.TimeLimit");
  // the task's own end
  options.evaluation.max_episode_steps = 1000;
  const auto whole = MakeEvaluator(options).Run("", GoOn);
  EXPECT_FALSE(whole->result.is_cut);
  EXPECT_THAT(whole->result.lengths, ::testing::ElementsAre(10, 10, 10));
}

TEST(EvaluatorTest, CanBeGivenUp) {
  Evaluator evaluator = MakeEvaluator(Cartpole(/*episodes=*/1000));
  int num_steps = 0;
  EXPECT_FALSE(evaluator.Run("", [&] { return ++num_steps == 15; }));
  EXPECT_EQ(num_steps, 15);
}

// Width, height, frames per second and number of frames.
std::string Describe(const std::filesystem::path& video) {
  constexpr const char* kEntries =
      "stream=width,height,r_frame_rate,nb_read_frames";
  return RunCommand(
             {.command = {"ffprobe", "-v", "error", "-count_frames",
                          "-show_entries", kEntries, "-of", "csv=p=0", video}},
             std::chrono::seconds(50))
      .output;
}

TEST(EvaluatorTest, FilmsTheFirstEpisodeAsFastAsItHappens) {
  const TemporaryFolder folder;
  const auto video = VideoFile(folder.path(), 12);
  EXPECT_EQ(video, folder.path() / "videos" / "step-000000000012.mp4");
  Evaluator evaluator = MakeEvaluator(Cartpole());
  const auto unfilmed = evaluator.Run("", GoOn);
  const auto trial = evaluator.Run(video, GoOn);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->video_problem, "");
  // ten steps of 100 times 10 ms, and the state before them
  EXPECT_EQ(Describe(video), "32,24,1/1,11\n");
  // the camera changes nothing
  EXPECT_EQ(trial->result.returns, unfilmed->result.returns);
}

TEST(EvaluatorTest, AFilmThatCannotBeMadeCostsNothingElse) {
  const TemporaryFolder folder;
  AtomicWriteFile(folder.path() / "videos", "not a folder");
  Evaluator evaluator = MakeEvaluator(Cartpole());
  const auto trial = evaluator.Run(VideoFile(folder.path(), 1), GoOn);
  ASSERT_TRUE(trial);
  EXPECT_THAT(trial->video_problem, HasSubstr("videos"));
  EXPECT_EQ(trial->result.returns.size(), 3U);

  // one that was given up leaves nothing behind
  const auto video = folder.path() / "out.mp4";
  int num_steps = 0;
  EXPECT_FALSE(evaluator.Run(video, [&] { return ++num_steps == 5; }));
  int num_files = 0;
  for ([[maybe_unused]] const auto& file :
       std::filesystem::directory_iterator(folder.path())) {
    ++num_files;
  }
  EXPECT_EQ(num_files, 1);
}

EvaluationConfig Read(const std::string& text) {
  return config::Load<EvaluationConfig>(
             config::Document::FromText("run.yaml", text))
      .config;
}

TEST(EvaluationConfigTest, EndsTheRunOnlyIfItIsTold) {
  EXPECT_FALSE(Read("").IsGoodEnough(1e9));
  const EvaluationConfig config = Read("stop_at_return: 800");
  EXPECT_TRUE(config.IsGoodEnough(800.0));
  EXPECT_FALSE(config.IsGoodEnough(799.9));
  EXPECT_TRUE(Read("stop_at_return: -5").IsGoodEnough(-4.0));
}

TEST(EvaluationConfigTest, FilmsAsTheAgentSeesButLarger) {
  env::TaskConfig task;
  task.pixels.camera = {.camera = "side", .height = 64, .width = 64};
  const auto cameras = Read("").VideoCameras(task);
  ASSERT_EQ(cameras.size(), 1U);
  EXPECT_EQ(cameras[0].camera, "side");
  EXPECT_EQ(cameras[0].height, 240);
  EXPECT_EQ(cameras[0].width, 320);
  EXPECT_EQ(Read("video: {camera: top}").VideoCameras(task)[0].camera, "top");
  // several side by side, unless the video has its own
  task.pixels.cameras = {{.camera = "side"}, {.camera = "back"}};
  EXPECT_EQ(Read("").VideoCameras(task)[1].camera, "back");
  EXPECT_EQ(Read("").VideoCameras(task)[1].height, 240);
  EXPECT_EQ(Read("video: {camera: top}").VideoCameras(task).size(), 1U);
}

TEST(EvaluationConfigTest, AReturnToStopAtNeedsEvaluations) {
  EXPECT_EQ(MessageOf<ConfigError>(
                [] { Read("{enabled: false, stop_at_return: 5}"); }),
            "run.yaml:1:34: stop_at_return: needs evaluations: enabled is "
            "false");
}

}  // namespace
}  // namespace replicant::evaluation
