// Trainings that lose a process or part of their state, and go on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/fs.h"
#include "base/process.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainingRecoveryTest : public TrainingFixture {};

// The end of a batch job or of a service: SIGTERM to all processes at once.
// Would catch a replay that ends before the learner's last checkpoint.
TEST_F(TrainingRecoveryTest, ASignalToAllProcessesEndsTheRunInOrder) {
  const auto output = folder_.path() / "output";
  Process fleet(
      {.command = Command(
           {"learner.limits.max_steps=0", "evaluation.video.enabled=false",
            "learner.checkpoint_interval_s=600", "learner.log_interval_s=0.1"}),
       .stdout_file = output,
       .stderr_file = output});
  ASSERT_TRUE(AwaitFile(run_ / "evaluations.jsonl", "return"))
      << ReadFile(output);
  // before its first update a run has no checkpoint
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "learner-0.1.log", "critic_loss"))
      << ReadFile(output);
  for (const char* const role : {"replay", "learner", "evaluator", "actor"}) {
    const pid_t process = ProcessOf(fleet.pid(), role);
    ASSERT_GT(process, 0) << role;
    ASSERT_EQ(::kill(process, SIGTERM), 0) << role;
  }
  // by a shell that passes its own on, and once more
  fleet.Signal(SIGTERM);
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status && status->ok()) << ReadFile(output);
  const std::string text = ReadFile(output);
  EXPECT_THAT(text, HasSubstr("status              stopped: stopped by a "
                              "signal\n"));
  EXPECT_THAT(text, HasSubstr("evaluates the last checkpoint"));
  EXPECT_THAT(text, Not(HasSubstr("restart in")));
  int num_whole = 0;
  for (const auto& checkpoint :
       std::filesystem::directory_iterator(run_ / "checkpoints")) {
    const std::string manifest = ReadFile(checkpoint.path() / "manifest.yaml");
    EXPECT_THAT(manifest, HasSubstr("input: true"));
    ++num_whole;
  }
  EXPECT_EQ(num_whole, 1);
}

// The launcher alone knows in which order a run ends.
TEST_F(TrainingRecoveryTest, ARoleLeavesItsEndToTheLauncher) {
  const auto output = folder_.path() / "output";
  Process fleet(
      {.command = Command({"learner.limits.max_steps=0",
                           "learner.checkpoint_interval_s=0.3",
                           "fleet.restart.learner.initial_backoff_s=0.1"}),
       .stdout_file = output,
       .stderr_file = output});
  const auto log = run_ / "logs" / "learner-0.1.log";
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << ReadFile(output);
  const pid_t learner = ProcessOf(fleet.pid(), "learner");
  ASSERT_EQ(::kill(learner, SIGTERM), 0);
  ASSERT_EQ(::kill(ProcessOf(fleet.pid(), "replay"), SIGTERM), 0);
  const auto num_checkpoints = [&log] {
    const std::string text = ReadFile(log);
    int count = 0;
    for (size_t at = text.find("stood still for"); at != std::string::npos;
         at = text.find("stood still for", at + 1)) {
      ++count;
    }
    return count;
  };
  // with parts of the replay
  const int before = num_checkpoints();
  const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
  while (num_checkpoints() < before + 3 && Clock::Real().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(num_checkpoints(), before + 3) << ReadFile(log);
  EXPECT_EQ(ProcessOf(fleet.pid(), "learner"), learner);
  fleet.Signal(SIGINT);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status && status->ok()) << ReadFile(output);
  EXPECT_THAT(ReadFile(output), Not(HasSubstr("restart in")));
}

// A folder elsewhere stands for a bucket.
TEST_F(TrainingRecoveryTest, ARunThatIsKeptElsewhereGoesOnOnAnotherMachine) {
  const std::string home = (folder_.path() / "home").string();
  std::vector<std::string> settings = {
      "evaluation.enabled=false", "learner.checkpoint_interval_s=0.3",
      "fleet.copy_command=cp -r --no-target-directory {run} " + home,
      "fleet.fetch_command=cp -r --no-target-directory " + home + " {run}"};
  std::filesystem::create_directory(home);
  const CommandResult begun = RunFleet(settings);
  EXPECT_TRUE(begun.status.ok()) << begun.output;
  EXPECT_TRUE(std::filesystem::exists(
      home + "/checkpoints/step-000000000050/manifest.yaml"));
  // the machine is gone
  std::filesystem::remove_all(run_);
  settings.push_back("learner.limits.max_steps=80");
  const CommandResult resumed = RunFleet(settings);
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  EXPECT_THAT(ReadFile(run_ / "logs" / "learner-0.2.log"),
              HasSubstr("continues from the checkpoint of step 50"));
  EXPECT_TRUE(std::filesystem::exists(
      home + "/checkpoints/step-000000000080/manifest.yaml"));
}

TEST_F(TrainingRecoveryTest, AFailedCopyIsNotSilent) {
  const CommandResult result =
      RunFleet({"evaluation.enabled=false",
                "fleet.copy_command=cp -r {run} /no-such-folder/home"});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.output,
              ::testing::ContainsRegex(
                  "fleet.copy_command: exit code 1; .*copy.log ends with:\n"
                  "  cp: .*/no-such-folder/home"));
}

TEST_F(TrainingRecoveryTest, AFailedFetchStartsNoRun) {
  const CommandResult result =
      RunFleet({"fleet.fetch_command=cp -r /no-such-folder/home {run}"});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.output,
              HasSubstr("fleet.fetch_command: exit code 1; it ends with:\n"
                        "  cp: cannot stat '/no-such-folder/home'"));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

TEST_F(TrainingRecoveryTest, AKilledEvaluatorComesBackAndTheTrainingGoesOn) {
  const auto output = folder_.path() / "output";
  Process fleet({.command = Command(
                     {"learner.limits.max_steps=0", "evaluation.interval_s=0.1",
                      "evaluation.video.enabled=false",
                      "fleet.restart.evaluator.initial_backoff_s="
                      "0.1"}),
                 .stdout_file = output,
                 .stderr_file = output});
  const auto await = [&](const std::function<bool()>& condition) {
    const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
    while (!condition() && Clock::Real().Now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return condition();
  };
  const auto has_evaluated = [&](size_t count) {
    return [this, count] { return Evaluations().size() >= count; };
  };
  ASSERT_TRUE(await(has_evaluated(2))) << ReadFile(output);
  const size_t num_before = Evaluations().size();
  ASSERT_EQ(::kill(ProcessOf(fleet.pid(), "evaluator"), SIGKILL), 0);
  ASSERT_TRUE(AwaitFile(output, "evaluator-0: signal 9 (Killed); restart in"))
      << ReadFile(output);
  ASSERT_TRUE(await(has_evaluated(num_before + 2))) << ReadFile(output);
  fleet.Signal(SIGINT);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status && status->ok()) << ReadFile(output);
  const std::string text = ReadFile(output);
  EXPECT_THAT(text, HasSubstr("status              stopped: stopped by a "
                              "signal\n"));
  EXPECT_THAT(text, Not(HasSubstr("learner-0 starts (incarnation 2)")));
  // time never goes back
  double last_s = 0.0;
  for (const std::string& line : Evaluations()) {
    const double seconds = std::stod(line.substr(line.find(':') + 1));
    EXPECT_GE(seconds, last_s) << line;
    last_s = seconds;
  }
}

// Actors wait for their inference server, and go on with the next one.
TEST_F(TrainingRecoveryTest, AKilledInferenceServerComesBack) {
  const auto output = folder_.path() / "output";
  Process fleet({.command = Command(
                     {"learner.limits.max_steps=0", "evaluation.enabled=false",
                      "actors.inference=host", "actors.count=2",
                      "learner.checkpoint_interval_s=0.3",
                      "fleet.restart.inference.initial_backoff_s=0.1"}),
                 .stdout_file = output,
                 .stderr_file = output});
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "learner-0.1.log", "stood still for"))
      << ReadFile(output);
  ASSERT_EQ(::kill(ProcessOf(fleet.pid(), "--role", "inference"), SIGKILL), 0);
  ASSERT_TRUE(AwaitFile(output, "inference-0 starts (incarnation 2)"))
      << ReadFile(output);
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "inference-0.2.log", "listening at"))
      << ReadFile(output);
  // it serves once the actors have asked it
  const auto has_served = [&] {
    const std::string status =
        RunCommand({.command = {REPLICANT_FLEET, "--status", run_.string()}},
                   std::chrono::minutes(1))
            .output;
    const size_t row = status.find("inference-0");
    return row != std::string::npos &&
           status.substr(row, status.find('\n', row) - row).find("rows") !=
               std::string::npos;
  };
  const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
  while (!has_served() && Clock::Real().Now() < deadline) {
  }
  EXPECT_TRUE(has_served()) << ReadFile(output);
  fleet.Signal(SIGINT);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status && status->ok()) << ReadFile(output);
  const std::string text = ReadFile(output);
  EXPECT_THAT(text, HasSubstr("inference-0: signal 9 (Killed); restart in"));
  EXPECT_THAT(text, Not(HasSubstr("actor-0 starts (incarnation 2)")));
  EXPECT_THAT(ReadFile(run_ / "logs" / "inference-0.2.log"),
              ::testing::ContainsRegex("ends after [1-9][0-9]* batches"));
}

// A run that has ended continues from its last checkpoint with all its parts,
// with the changes of --set.
TEST_F(TrainingRecoveryTest, AnEndedRunIsResumedAsAWhole) {
  ASSERT_TRUE(RunFleet({}).status.ok());
  const auto checkpoint = [&](int step) {
    return run_ / "checkpoints" / fmt::format("step-{:012}", step);
  };
  const std::string variables =
      ReadFile(checkpoint(50) / "variables.safetensors");
  EXPECT_THAT(ReadFile(checkpoint(50) / "manifest.yaml"),
              HasSubstr("step: 50\nid: 1\ninput: true"));

  const CommandResult resumed =
      RunCommand({.command = {REPLICANT_FLEET, "--resume", run_.string(),
                              "--set", "learner.limits.max_steps=80"}},
                 std::chrono::minutes(3));
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  EXPECT_THAT(ReadFile(run_ / "logs" / "learner-0.2.log"),
              HasSubstr("continues from the checkpoint of step 50"));
  EXPECT_THAT(ReadFile(run_ / "logs" / "replay-0.2.log"),
              HasSubstr("of id 1 and"));
  EXPECT_THAT(ReadFile(checkpoint(80) / "manifest.yaml"),
              HasSubstr("step: 80\nid: 2\ninput: true"));
  EXPECT_TRUE(ReadFile(checkpoint(50) / "variables.safetensors") == variables);
  EXPECT_THAT(ReadFile(run_ / "config.yaml"), HasSubstr("max_steps: 80"));
}

// A resume with networks that the checkpoint does not have, or past a limit,
// changes nothing of the run.
TEST_F(TrainingRecoveryTest, AResumeThatCannotWorkLeavesTheRunAlone) {
  ASSERT_TRUE(RunFleet({}).status.ok());
  const std::string config = ReadFile(run_ / "config.yaml");
  const std::string starts = ReadFile(run_ / "run.yaml");
  const auto resume = [&](const std::vector<std::string>& settings,
                          int code = 1) {
    std::vector<std::string> command = {REPLICANT_FLEET, "--resume",
                                        run_.string()};
    for (const std::string& setting : settings) {
      command.insert(command.end(), {"--set", setting});
    }
    const CommandResult result =
        RunCommand({.command = command}, std::chrono::minutes(3));
    EXPECT_EQ(result.status.code, code);
    EXPECT_EQ(ReadFile(run_ / "config.yaml"), config);
    EXPECT_EQ(ReadFile(run_ / "run.yaml"), starts);
    return result.output;
  };
  EXPECT_THAT(resume({}),
              HasSubstr("fleet: --resume " + run_.string() +
                        ": the run is complete: 50 steps have reached "
                        "learner.limits.max_steps = 50; hint: --set "
                        "learner.limits.max_steps=N"));
  EXPECT_THAT(resume({"learner.limits={max_steps: 0, max_seconds: 0.001}"}),
              HasSubstr("learner.limits.max_seconds = 0.001"));
  EXPECT_THAT(resume({"learner.limits={max_steps: 0, max_frames: 100}"}),
              HasSubstr("learner.limits.max_frames = 100"));
  EXPECT_THAT(
      resume({"learner.limits.max_steps=0", "evaluation.stop_at_return=-1"}),
      HasSubstr("evaluation.stop_at_return = -1; hint"));
  for (const char* sizes : {"[17]", "[16, 16]"}) {
    EXPECT_THAT(
        resume({"learner.limits.max_steps=80",
                std::string("agent.networks.policy_hidden_sizes=") + sizes},
               kExitConfig),
        HasSubstr("the configuration does not fit the run's "
                  "checkpoints, nothing is changed: " +
                  run_.string()))
        << sizes;
  }
  EXPECT_THAT(
      resume({"learner.limits.max_steps=80", "run.seed=7"}, kExitConfig),
      HasSubstr("run.seed: 7, but the run in " + run_.string() +
                " has 1; hint"));
  EXPECT_THAT(
      resume({"learner.limits.max_steps=80", "task.action_repeat_reward=sum"},
             kExitConfig),
      HasSubstr("task.action_repeat_reward: sum, but the run in " +
                run_.string() + " has mean; hint"));
  const auto permissions = [this](std::filesystem::perms others) {
    std::filesystem::permissions(run_ / "run.key",
                                 std::filesystem::perms::owner_read | others);
  };
  permissions(std::filesystem::perms::others_read);
  EXPECT_THAT(resume({"learner.limits.max_steps=80"}), HasSubstr("run.key"));
  permissions({});
  const std::string evaluations = ReadFile(run_ / "evaluations.jsonl");
  AtomicWriteFile(run_ / "evaluations.jsonl", "no\n" + evaluations);
  EXPECT_THAT(resume({"learner.limits.max_steps=80"}),
              HasSubstr("evaluations.jsonl:1: not an evaluation record"));
  AtomicWriteFile(run_ / "evaluations.jsonl", evaluations);
  EXPECT_TRUE(RunEvaluator({"--checkpoint", run_.string(), "--episodes", "1"})
                  .status.ok());
}

// Whatever fails after the checks, config.yaml still fits the checkpoints.
TEST_F(TrainingRecoveryTest, AResumeThatARoleRefusesChangesNothing) {
  ASSERT_TRUE(RunFleet({"evaluation.enabled=false"}).status.ok());
  const std::string config = ReadFile(run_ / "config.yaml");
  const auto expect_refused = [&](const std::string& setting) {
    const CommandResult refused = RunCommand(
        {.command = {REPLICANT_FLEET, "--resume", run_.string(), "--set",
                     "learner.limits.max_steps=80", "--set", setting}},
        std::chrono::minutes(3));
    EXPECT_EQ(refused.status.code, kExitConfig) << refused.output;
    EXPECT_THAT(refused.output,
                HasSubstr(setting.substr(0, setting.find('='))));
    EXPECT_EQ(ReadFile(run_ / "config.yaml"), config);
    EXPECT_FALSE(std::filesystem::exists(run_ / "config.new.yaml"));
    EXPECT_THAT(ReadFile(run_ / "state.yaml"), HasSubstr("status: complete\n"));
  };
  // the fleet itself, before anything starts
  expect_refused("replay.tables.default.n_step=2");
  // the learner
  expect_refused("learner.limits.max_epochs=1");
}

// The newest checkpoint's part in the replay is damaged: the one before it
// counts.
TEST_F(TrainingRecoveryTest, ADamagedReplayGoesBackOneCheckpointMore) {
  ASSERT_TRUE(RunFleet({"evaluation.enabled=false"}).status.ok());
  const auto resume = [&](int max_steps) {
    return RunCommand(
        {.command = {REPLICANT_FLEET, "--resume", run_.string(), "--set",
                     fmt::format("learner.limits.max_steps={}", max_steps)}},
        std::chrono::minutes(3));
  };
  ASSERT_TRUE(resume(80).status.ok());
  int num_damaged = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(run_ / "replay")) {
    if (entry.path().extension() != ".ckpt") continue;
    const std::string bytes = ReadFile(entry.path());
    uint64_t id = 0;
    std::memcpy(&id, bytes.data() + 16, sizeof(id));
    if (id != 2) continue;
    std::ofstream(entry.path()) << bytes.substr(0, bytes.size() - 1);
    ++num_damaged;
  }
  EXPECT_GT(num_damaged, 0);

  const CommandResult resumed = resume(100);
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("checkpoint of step 80 is left out: " +
                                        (run_ / "replay").string()));
  EXPECT_THAT(ReadFile(run_ / "logs" / "learner-0.3.log"),
              HasSubstr("continues from the checkpoint of step 50"));
  EXPECT_TRUE(std::filesystem::exists(
      run_ / "checkpoints/step-000000000100/manifest.yaml"));
}

// The learner's part is damaged: learner and replay both go back, or they would
// be of two moments.
TEST_F(TrainingRecoveryTest, ADamagedLearnerTakesTheReplayBackWithIt) {
  ASSERT_TRUE(RunFleet({"evaluation.enabled=false"}).status.ok());
  const auto resume = [&](int max_steps) {
    return RunCommand(
        {.command = {REPLICANT_FLEET, "--resume", run_.string(), "--set",
                     fmt::format("learner.limits.max_steps={}", max_steps)}},
        std::chrono::minutes(3));
  };
  ASSERT_TRUE(resume(80).status.ok());
  const auto variables =
      run_ / "checkpoints/step-000000000080/variables.safetensors";
  const std::string bytes = ReadFile(variables);
  std::ofstream(variables) << bytes.substr(0, bytes.size() - 1);

  const CommandResult resumed = resume(100);
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("checkpoint of step 80 is left out: " +
                                        variables.string()));
  EXPECT_THAT(ReadFile(run_ / "logs" / "learner-0.3.log"),
              HasSubstr("continues from the checkpoint of step 50"));
  EXPECT_THAT(ReadFile(run_ / "logs" / "replay-0.3.log"),
              HasSubstr("of id 1 and"));
}

}  // namespace
}  // namespace replicant
