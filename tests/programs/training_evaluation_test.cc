// Evaluations of a training: by the evaluator next to it and by hand.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "agents/policy_topic.h"
#include "base/fs.h"
#include "base/process.h"
#include "learner/parameter_publisher.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class TrainingEvaluationTest : public TrainingFixture {};

// A learner that its fleet has restarted publishes an earlier step. Would catch
// an evaluator that keeps the lost branch until the next evaluation is due.
TEST_F(TrainingEvaluationTest, EvaluationsOfALostBranchAreRemovedAtOnce) {
  const CommandResult run = RunFleet({});
  ASSERT_TRUE(run.status.ok()) << run.output;
  std::filesystem::remove(run_ / "evaluations.jsonl");
  const auto best = std::filesystem::directory_iterator(run_ / "best")->path();
  const std::string policy = ReadFile(best / "variables.safetensors");
  learner::ParameterPublisher learner("tcp://127.0.0.1:*");
  const auto output = folder_.path() / "output";
  Process evaluator(
      {.command = {REPLICANT_EVALUATOR, "--config", run_ / "config.yaml",
                   "--set", "run.dir=" + run_.string(), "--set",
                   "run.key_file=\"\"", "--set",
                   "learner.parameter_bind=" + learner.endpoint(), "--set",
                   "evaluation={interval_s: 100000, episodes: 1}"},
       .stdout_file = output,
       .stderr_file = output});
  learner.Publish(agents::kPolicyTopic, 50, policy);
  ASSERT_TRUE(AwaitFile(run_ / "evaluations.jsonl", "\"step\":50,"))
      << ReadFile(output);
  learner.Publish(agents::kPolicyTopic, 20, policy);
  EXPECT_TRUE(Await([&] { return Evaluations().empty(); })) << ReadFile(output);
  evaluator.Signal(SIGTERM);
  EXPECT_TRUE(evaluator.Wait(std::chrono::minutes(3)).has_value());
}

TEST_F(TrainingEvaluationTest, AnEvaluationByHandAddsNothingToTheRun) {
  const CommandResult run = RunFleet({"evaluation.enabled=false"});
  ASSERT_TRUE(run.status.ok()) << run.output;
  EXPECT_TRUE(Evaluations().empty());
  EXPECT_FALSE(std::filesystem::exists(run_ / "curve.png"));
  EXPECT_THAT(run.output, Not(HasSubstr("evaluator-0")));

  const CommandResult newest =
      RunEvaluator({"--checkpoint", run_, "--episodes", "3"});
  EXPECT_TRUE(newest.status.ok()) << newest.output;
  EXPECT_THAT(newest.output,
              MatchesRegex("task        cartpole-swingup\n"
                           "checkpoint  .*/checkpoints/step-000000000050\n"
                           "step        50\n"
                           "episodes    3 from seed 1000\n"
                           "return      [0-9.]+ [+]- [0-9.]+ [(]min [0-9.]+, "
                           "max [0-9.]+[)]\n"));
  const auto checkpoint = run_ / "checkpoints" / "step-000000000050";
  EXPECT_EQ(RunEvaluator(
                {"--checkpoint", checkpoint.string() + "/", "--episodes", "3"})
                .output,
            newest.output);
  // the learner evaluates every workload
  EXPECT_EQ(
      RunCommand(
          {.command = {std::filesystem::path(REPLICANT_FLEET).parent_path() /
                           "learner",
                       "--evaluate", checkpoint, "--set",
                       "evaluation.episodes=3"}},
          std::chrono::minutes(3))
          .output,
      newest.output);
  EXPECT_NE(
      RunEvaluator({"--checkpoint", run_, "--episodes", "3", "--seed", "5"})
          .output,
      newest.output);
  const CommandResult json =
      RunEvaluator({"--checkpoint", run_, "--episodes", "3", "--json"});
  EXPECT_TRUE(json.status.ok()) << json.output;
  EXPECT_THAT(
      json.output,
      MatchesRegex("[{]\"task\":\"cartpole-swingup\",\"checkpoint\":\".*\","
                   "\"step\":50,\"frames\":[0-9]+,\"seed\":1000,\"episodes\":3,"
                   "\"return\":[0-9.]+,.*\"returns\":.[0-9.]+,[0-9.]+,[0-9.]+.,"
                   "\"lengths\":.*[}]\n"));
  const auto video = folder_.path() / "by hand.mp4";
  const CommandResult filmed =
      RunEvaluator({"--checkpoint", run_, "--episodes", "1", "--video", video});
  EXPECT_TRUE(filmed.status.ok()) << filmed.output;
  EXPECT_THAT(filmed.output, HasSubstr("video       " + video.string() + "\n"));
  EXPECT_EQ(Describe(video), "32,24,126\n");
  EXPECT_TRUE(Evaluations().empty());
  EXPECT_FALSE(std::filesystem::exists(run_ / "videos"));

  // what was asked for and is not there is no success
  const CommandResult none =
      RunEvaluator({"--checkpoint", run_, "--episodes", "1", "--video",
                    "/proc/none/out.mp4"});
  EXPECT_EQ(none.status.code, 1);
  EXPECT_THAT(none.output, HasSubstr("video       none: "));
}

TEST_F(TrainingEvaluationTest, AMistakeOfAnEvaluationIsOneClearLine) {
  const std::string folder = folder_.path().string();
  const auto message = [&](const std::vector<std::string>& words) {
    const CommandResult result = RunEvaluator(words);
    EXPECT_EQ(result.status.code, 1);
    return result.output;
  };
  EXPECT_EQ(message({"--checkpoint", folder + "/x"}),
            "evaluator: --checkpoint " + folder + "/x: no such folder\n");
  EXPECT_EQ(message({"--checkpoint", folder}),
            "evaluator: --checkpoint " + folder +
                ": neither the folder of a run, which has a config.yaml, nor a "
                "checkpoint in one\n");
  AtomicWriteFile(folder_.path() / "config.yaml", "run: {name: x}\n");
  EXPECT_EQ(message({"--checkpoint", folder}),
            "evaluator: --checkpoint " + folder +
                ": the run has no checkpoint yet\n");
  EXPECT_THAT(message({"--checkpoint", folder, "--episodes", "none"}),
              HasSubstr("evaluation.episodes: cannot read 'none'"));
  EXPECT_EQ(message({"--config", folder + "/config.yaml", "--video"}),
            "evaluator: --video: needs --checkpoint; hint: "
            "evaluation.video records videos during a training\n");
  EXPECT_THAT(message({}),
              HasSubstr("evaluator: --config FILE or --checkpoint is missing"));
}

TEST_F(TrainingEvaluationTest, AGoodReturnEndsTheRun) {
  const CommandResult result =
      RunFleet({"evaluation.stop_at_return=0.001", "evaluation.interval_s=0.1",
                "learner.limits.max_steps=0", "learner.limits.max_seconds=100",
                "evaluation.video.enabled=false"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("status              complete: evaluator-0 has "
                        "completed the run: return "));
  EXPECT_THAT(result.output,
              HasSubstr("reaches evaluation.stop_at_return = 0.001\n"));
  // the best policy is kept, named and of use
  EXPECT_THAT(result.output,
              HasSubstr("best policy         " + (run_ / "best").string()));
  std::vector<std::filesystem::path> best;
  for (const auto& entry : std::filesystem::directory_iterator(run_ / "best")) {
    best.push_back(entry.path());
  }
  ASSERT_EQ(best.size(), 1U);
  const CommandResult by_hand = RunEvaluator({"--checkpoint", best[0]});
  EXPECT_TRUE(by_hand.status.ok()) << by_hand.output;
  EXPECT_EQ(RunEvaluator({"--checkpoint", run_, "--which", "best"}).output,
            by_hand.output);
  // it has no critic
  const auto model = folder_.path() / "best.onnx";
  const CommandResult exported = RunCommand(
      {.command = {std::filesystem::path(REPLICANT_FLEET).parent_path() /
                       "export",
                   "--checkpoint", run_, "--which", "best", "--to", model}},
      std::chrono::minutes(3));
  EXPECT_TRUE(exported.status.ok()) << exported.output;
  EXPECT_THAT(exported.output,
              HasSubstr("checkpoint " + best[0].string() + "\n"));
  EXPECT_TRUE(std::filesystem::exists(model));
  EXPECT_THAT(ReadFile(run_ / "fleet.jsonl"), HasSubstr("replay/items"));
  EXPECT_FALSE(std::filesystem::exists(run_ / "videos"));
}

}  // namespace
}  // namespace replicant
