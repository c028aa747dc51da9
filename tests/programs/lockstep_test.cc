// The program `lockstep`: whole trainings, a few steps long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/safetensors.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommandResult RunLockstep(const std::filesystem::path& config,
                          const std::vector<std::string>& settings) {
  std::vector<std::string> command = {REPLICANT_LOCKSTEP, "--config",
                                      config.string()};
  for (const std::string& setting : settings) {
    command.push_back("--set");
    command.push_back(setting);
  }
  return RunCommand({.command = command}, std::chrono::minutes(2));
}

class LockstepTest : public ::testing::Test {
 protected:
  // The shipped recipe, made small.
  CommandResult RunShort(const std::string& name,
                         std::vector<std::string> settings = {}) {
    std::vector<std::string> all = {
        "run.dir=" + (folder_.path() / name).string(),
        "learner.parameter_bind=\"\"",
        "agent.networks.policy_hidden_sizes=[16]",
        "agent.networks.critic_hidden_sizes=[16]",
        "learner.limits.max_steps=30",
        "actors.exploration.random_steps=50",
        "replay.tables.default.rate_limiter.min_size_to_sample=100"};
    all.insert(all.end(), settings.begin(), settings.end());
    return RunLockstep(std::string(REPLICANT_SOURCE_DIR) +
                           "/configs/cartpole_swingup_state.yaml",
                       all);
  }

  std::string Variables(const std::string& name) const {
    return ReadFile(folder_.path() / name / "checkpoints" /
                    "step-000000000030" / "variables.safetensors");
  }

  TemporaryFolder folder_;
};

TEST_F(LockstepTest, TheSameSeedGivesTheSameBits) {
  for (const char* name : {"a", "b"}) {
    const CommandResult result = RunShort(name);
    ASSERT_TRUE(result.status.ok()) << result.output;
  }
  const CommandResult other = RunShort("c", {"run.seed=2", "actors.count=3"});
  ASSERT_TRUE(other.status.ok()) << other.output;
  EXPECT_THAT(other.output,
              HasSubstr("actors.count: 3: lockstep has one actor, with the 1 "
                        "of actors.environments"));
  // compared in one go: the files are long
  EXPECT_TRUE(Variables("a") == Variables("b"));
  EXPECT_FALSE(Variables("a") == Variables("c"));
  EXPECT_THAT(ReadFile(folder_.path() / "a" / "learner.jsonl"),
              HasSubstr("\"critic_loss\":"));
  EXPECT_THAT(ReadFile(folder_.path() / "a" / "config.yaml"),
              HasSubstr("max_steps: 30"));
}

// Started without stderr, a program must not log into the first file that it
// opens.
TEST_F(LockstepTest, AClosedStderrLeavesNoLogInTheRun) {
  const std::filesystem::path run = folder_.path() / "run";
  const CommandResult result =
      RunCommand({.command = {"sh", "-c", R"("$0" "$@" 2>&-)",
                              REPLICANT_LOCKSTEP, "--config",
                              std::string(REPLICANT_SOURCE_DIR) +
                                  "/configs/cartpole_swingup_state.yaml",
                              "--set", "run.dir=" + run.string(), "--set",
                              "learner.parameter_bind=\"\"", "--set",
                              "learner.limits.max_steps=1"}},
                 std::chrono::minutes(2));
  EXPECT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_THAT(ReadFile(run / "lock"), Not(HasSubstr(" lockstep/")));
}

TEST_F(LockstepTest, EvaluatesAndStopsAtAGoodReturn) {
  const CommandResult result = RunShort(
      "a", {"learner.log_interval_s=0.01", "evaluation.interval_s=0.1",
            "evaluation.stop_at_return=0.001", "learner.limits.max_steps=0",
            "learner.limits.max_seconds=100"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("the return reaches evaluation.stop_at_return"));
  const auto evaluations = folder_.path() / "a" / "evaluations.jsonl";
  const std::string good = ReadFile(evaluations);
  EXPECT_THAT(good, HasSubstr("\"frames\":"));
  // it stays good enough
  const CommandResult again = RunShort(
      "a", {"evaluation.stop_at_return=0.001", "learner.limits.max_steps=0",
            "learner.limits.max_seconds=100"});
  EXPECT_TRUE(again.status.ok()) << again.output;
  EXPECT_THAT(again.output, HasSubstr("the run is complete: return "));
  EXPECT_EQ(ReadFile(evaluations), good);
  // the last policy is tried out in any case, unless nobody wants to know
  ASSERT_TRUE(RunShort("b").status.ok());
  const std::string last = ReadFile(folder_.path() / "b" / "evaluations.jsonl");
  EXPECT_THAT(last, HasSubstr("\"step\":30,"));
  // once only
  ASSERT_TRUE(RunShort("b").status.ok());
  EXPECT_EQ(ReadFile(folder_.path() / "b" / "evaluations.jsonl"), last);
  const bool has_gnuplot =
      std::system("command -v gnuplot > /dev/null") == 0;  // NOLINT
  EXPECT_EQ(std::filesystem::exists(folder_.path() / "b" / "curve.png"),
            has_gnuplot);
  ASSERT_TRUE(RunShort("c", {"evaluation.enabled=false"}).status.ok());
  EXPECT_FALSE(
      std::filesystem::exists(folder_.path() / "c" / "evaluations.jsonl"));
}

constexpr const char* kSmallEncoder =
    "agent.networks.encoder={kind: custom, channels: [4], kernels: [4], "
    "strides: [4]}";
constexpr const char* kTwoCameras =
    "task.pixels={enabled: true, cameras: [fixed, lookatcart], heights: "
    "[24, 16], widths: [24, 20], state: true}";
constexpr const char* kImitation =
    "agent.behaviour_cloning={weight: 1, decay_start: 10, decay_updates: "
    "15, q_filter: true}";

// Would catch replicas that begin batches which no step counts.
TEST_F(LockstepTest, HogwildMakesNoUpdateBeyondTheLimit) {
  const CommandResult result =
      RunShort("a", {"learner.replication={strategy: hogwild, replicas: 3}"});
  ASSERT_TRUE(result.status.ok()) << result.output;
  const SafetensorsReader variables(folder_.path() / "a" / "checkpoints" /
                                    "step-000000000030" /
                                    "variables.safetensors");
  EXPECT_EQ(variables.Read("step").view().Span<int64_t>()[0], 30);
}

TEST_F(LockstepTest, LearnsFromPixels) {
  const CommandResult result = RunShort(
      "pixels",
      {"task.pixels={enabled: true, height: 24, width: 24, frame_stack: 2}",
       kSmallEncoder, "agent.random_shift=2", "learner.batch_size=8",
       "learner.limits.max_steps=5"});
  EXPECT_TRUE(result.status.ok()) << result.output;
}

TEST_F(LockstepTest, PredictsFromTwoCamerasAndTheState) {
  const CommandResult result = RunShort(
      "cameras",
      {kTwoCameras, kSmallEncoder, "agent.networks.encoder.shared_weights=true",
       "agent.random_shift=2", "learner.batch_size=8",
       "agent.networks.shared_embedding=true", "agent.representation.horizon=3",
       "replay.tables.default.window=3", "replay.tables.default.n_step=2",
       "learner.limits.max_steps=5"});
  EXPECT_TRUE(result.status.ok()) << result.output;
}

TEST_F(LockstepTest, ACameraThatTheModelLacksIsRefused) {
  const CommandResult result = RunShort(
      "cameras",
      {"task.pixels={enabled: true, cameras: [fixed, wrist]}", kSmallEncoder});
  EXPECT_THAT(result.output,
              HasSubstr("no camera 'wrist'; allowed: -1 (free), 0 fixed, 1 "
                        "lookatcart"));
  EXPECT_FALSE(result.status.ok());
}

TEST_F(LockstepTest, PredictsFromPixelsAndTheStateBesideThem) {
  const CommandResult result = RunShort(
      "both",
      {"task.pixels={enabled: true, height: 24, width: 24, state: true}",
       kSmallEncoder, "agent.random_shift=2", "learner.batch_size=8",
       "agent.networks.shared_embedding=true", "agent.representation.horizon=3",
       "replay.tables.default.window=3", "replay.tables.default.n_step=2",
       "learner.limits.max_steps=5"});
  EXPECT_TRUE(result.status.ok()) << result.output;
}

// Stopped at any step and resumed, a run continues as if it had never stopped:
// to the bit, including everything around the learner.
TEST_F(LockstepTest, ARunThatIsResumedEqualsOneThatWasNot) {
  const std::vector<std::string> pixels = {
      "task.pixels={enabled: true, height: 24, width: 24, state: true}",
      kSmallEncoder, "agent.random_shift=2", "learner.batch_size=8",
      // episodes of 13 steps: many end in the middle of a group
      "task.action_repeat=80"};
  const std::vector<std::string> cameras = {
      kTwoCameras, kSmallEncoder, "agent.random_shift=2",
      "learner.batch_size=8", "task.action_repeat=80"};
  const std::vector<std::string> model = {
      "task.pixels={enabled: true, height: 24, width: 24}", kSmallEncoder,
      "learner.batch_size=8", "task.action_repeat=80",
      "agent.networks.shared_embedding=true",
      // two of three observations, drawn by item and draw; many of the items
      // are inserted after the resume
      "agent.representation={horizon: 3, targets: 2, contrast_weight: 0.1}",
      "replay.tables.default.rate_limiter={samples_per_insert: 4, "
      "min_size_to_sample: 100, error_buffer: 16}",
      "replay.tables.default.window=3", "replay.tables.default.n_step=2",
      "agent.target={update: periodic_copy, period: 10}",
      "agent.average_decay=0.9"};
  const std::vector<std::string> state = {
      "actors.environments=2", "actors.exploration.random_steps=150",
      "replay.tables.default={sampler: prioritized, max_size: 300}",
      // the rate limiter holds writers up
      "replay.tables.default.rate_limiter={samples_per_insert: 256, "
      "min_size_to_sample: 100, error_buffer: 512}"};
  for (const auto& observed :
       {std::pair("pixels", pixels), std::pair("cameras", cameras),
        std::pair("model", model), std::pair("state", state)}) {
    // names, not bindings: clang 14 lets no lambda capture those
    const std::string name = observed.first;
    const std::vector<std::string>& settings = observed.second;
    const auto run = [&](const std::string& folder, int steps) {
      std::vector<std::string> all = settings;
      all.push_back("learner.log_interval_s=0.01");
      all.push_back("learner.limits.max_steps=" + std::to_string(steps));
      const CommandResult result = RunShort(name + folder, all);
      ASSERT_TRUE(result.status.ok()) << result.output;
    };
    run("-whole", 60);
    run("-parts", 23);
    run("-parts", 24);
    run("-parts", 60);
    const auto whole = folder_.path() / (name + "-whole");
    const auto parts = folder_.path() / (name + "-parts");
    for (const char* file :
         {"variables.safetensors", "checkpoint.json", "lockstep.safetensors"}) {
      const auto path =
          std::filesystem::path("checkpoints/step-000000000060") / file;
      EXPECT_TRUE(ReadFile(whole / path) == ReadFile(parts / path))
          << name << ": " << file;
    }
  }
}

// Whichever part of the newest checkpoint is damaged, all parts go back to the
// one before.
TEST_F(LockstepTest, ADamagedCheckpointIsLeftOut) {
  const auto run = [this](const std::string& name, int steps) {
    return RunShort(name,
                    {"evaluation.enabled=false", "learner.log_interval_s=0.01",
                     "learner.limits.max_steps=" + std::to_string(steps)});
  };
  const auto checkpoint = [this](const std::string& name, const char* step) {
    return folder_.path() / name / "checkpoints" / step;
  };
  const auto damage = [](const std::filesystem::path& file) {
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  };
  constexpr const char* kOld = "step-000000000020";
  constexpr const char* kNew = "step-000000000030";
  constexpr const char* kLast = "step-000000000040/variables.safetensors";
  ASSERT_TRUE(run("whole", 40).status.ok());
  const std::string variables = ReadFile(checkpoint("whole", kLast));
  for (const std::string part : {"learner", "lockstep", "replay"}) {
    ASSERT_TRUE(run(part, 20).status.ok());
    ASSERT_TRUE(run(part, 30).status.ok());
    if (part == "learner") {
      damage(checkpoint(part, kNew) / "variables.safetensors");
    } else if (part == "lockstep") {
      damage(checkpoint(part, kNew) / "lockstep.safetensors");
    } else {
      std::filesystem::path newest;
      for (const auto& entry : std::filesystem::directory_iterator(
               folder_.path() / part / "replay")) {
        if (entry.path().extension() == ".ckpt") {
          newest = std::max(newest, entry.path());
        }
      }
      damage(newest);
    }
    const CommandResult resumed = run(part, 40);
    ASSERT_TRUE(resumed.status.ok()) << part << resumed.output;
    EXPECT_THAT(resumed.output,
                HasSubstr("checkpoint of step 30 is left out: "));
    EXPECT_TRUE(ReadFile(checkpoint(part, kLast)) == variables) << part;
  }
  // an attempt that fails changes nothing
  ASSERT_TRUE(run("none", 20).status.ok());
  ASSERT_TRUE(run("none", 30).status.ok());
  damage(checkpoint("none", kNew) / "variables.safetensors");
  damage(checkpoint("none", kOld) / "lockstep.safetensors");
  const auto lines = folder_.path() / "none" / "learner.jsonl";
  const std::string before = ReadFile(lines);
  const CommandResult refused = run("none", 40);
  EXPECT_EQ(refused.status.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("no checkpoint can be read: "));
  EXPECT_EQ(ReadFile(lines), before);
}

// Prior data is the replay of another run: offline first, then half of each
// batch. The parts end in the offline steps and after them.
TEST_F(LockstepTest, ARunWithPriorDataIsResumedToTheBit) {
  ASSERT_TRUE(RunShort("earlier", {"run.seed=9"}).status.ok());
  const auto run = [&](const std::string& folder, int steps) {
    return RunShort(
        folder,
        {"replay.prior.folder=" + (folder_.path() / "earlier/replay").string(),
         "learner.batch_shares={prior: 0.25, default: 0.75}",
         "learner.offline_updates=15", kImitation,
         "learner.importance_exponent=0.4", "learner.log_interval_s=0.01",
         "learner.limits.max_steps=" + std::to_string(steps)});
  };
  for (const auto& [folder, steps] :
       {std::pair("whole", 30), std::pair("parts", 7), std::pair("parts", 15),
        std::pair("parts", 22), std::pair("parts", 30)}) {
    const CommandResult result = run(folder, steps);
    ASSERT_TRUE(result.status.ok()) << result.output;
  }
  for (const char* file :
       {"variables.safetensors", "checkpoint.json", "lockstep.safetensors"}) {
    const auto path =
        std::filesystem::path("checkpoints/step-000000000030") / file;
    EXPECT_TRUE(ReadFile(folder_.path() / "whole" / path) ==
                ReadFile(folder_.path() / "parts" / path))
        << file;
  }
  EXPECT_FALSE(Variables("whole") == Variables("earlier"));
  // nobody acts in the offline steps
  const std::string lines = ReadFile(folder_.path() / "parts/learner.jsonl");
  EXPECT_THAT(lines, HasSubstr("\"frames\":0"));
}

TEST_F(LockstepTest, PriorDataOfAnotherTaskIsRefused) {
  ASSERT_TRUE(RunShort("earlier", {"task.name=pendulum-swingup"}).status.ok());
  const std::string folder = (folder_.path() / "earlier/replay").string();
  const CommandResult result = RunShort("a", {"replay.prior.folder=" + folder});
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(result.output,
              HasSubstr("replay.prior.folder: " + folder +
                        ": its steps have 3 numbers beside the pixels, 1 of "
                        "the action, 0 bytes of a frame; the run's have 5"));
  // the corrected command finds the folder as it was
  EXPECT_TRUE(RunShort("a").status.ok());
}

// The run continues from its own copy of the model, any number of times.
TEST_F(LockstepTest, ARunWithItsOwnModelIsResumedByItsOwnFile) {
  const auto run = folder_.path() / "a";
  ASSERT_TRUE(RunShort("a", {"task.mjcf=" REPLICANT_SUITE "/cartpole.xml"})
                  .status.ok());
  for (const int steps : {40, 50}) {
    const CommandResult resumed =
        RunLockstep(run / "config.yaml",
                    {"run.dir=" + run.string(),
                     "learner.limits.max_steps=" + std::to_string(steps)});
    EXPECT_TRUE(resumed.status.ok()) << resumed.output;
    EXPECT_TRUE(std::filesystem::exists(run / "model" / "model.xml"));
  }
}

// Files that another process writes there stay.
TEST_F(LockstepTest, RefusesAFolderOfSomethingElse) {
  const auto run = folder_.path() / "a";
  MakeFolders(run / "replay");
  AtomicWriteFile(run / "replay" / "thesis.txt", "x");
  const auto refusal = [this](const std::vector<std::string>& settings = {}) {
    const CommandResult result = RunShort("a", settings);
    EXPECT_EQ(result.status.code, 1);
    return result.output;
  };
  EXPECT_THAT(refusal(), HasSubstr("it is not empty and holds no run"));
  AtomicWriteFile(run / "learner.jsonl", "");
  {
    const FileLock lock(run / "lock", "a test");
    EXPECT_THAT(refusal(), HasSubstr("in use by process"));
  }
  AtomicWriteFile(run / "config.yaml", "task: {name: cartpole-balance}\n");
  EXPECT_THAT(refusal(),
              HasSubstr("task.name: cartpole-swingup, but the run in "));
  AtomicWriteFile(run / "config.yaml", "run: {seed: 1}\n");
  EXPECT_THAT(refusal({"run.seed=2"}), HasSubstr("run.seed: 2, but the run"));
  AtomicWriteFile(run / "state.yaml", "status: stopped\n");
  EXPECT_THAT(refusal(), HasSubstr("fleet --resume"));
  EXPECT_TRUE(std::filesystem::exists(run / "replay" / "thesis.txt"));
  // a run that was killed before its first checkpoint begins anew
  std::filesystem::remove(run / "state.yaml");
  EXPECT_TRUE(RunShort("a").status.ok());
  EXPECT_TRUE(
      std::filesystem::exists(run / "replay.unfinished" / "thesis.txt"));
}

// Whether `text` comes to stand in the file within two minutes.
bool AwaitText(const std::filesystem::path& file, const std::string& text) {
  const auto deadline = Clock::Real().Now() + std::chrono::minutes(2);
  while (Clock::Real().Now() < deadline) {
    if (std::filesystem::exists(file) &&
        ReadFile(file).find(text) != std::string::npos) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(LockstepTest, ASignalEndsAnEvaluation) {
  const auto output = folder_.path() / "out";
  Process process(
      {.command = {REPLICANT_LOCKSTEP, "--config",
                   std::string(REPLICANT_SOURCE_DIR) +
                       "/configs/cartpole_swingup_state.yaml",
                   "--set", "run.dir=" + (folder_.path() / "a").string(),
                   "--set", "learner.parameter_bind=\"\"", "--set",
                   "learner.log_interval_s=0.01", "--set",
                   "evaluation={episodes: 10000, interval_s: 0.1}"},
       .stdout_file = output,
       .stderr_file = output});
  // it takes signals
  ASSERT_TRUE(AwaitText(folder_.path() / "a" / "config.yaml", "task"))
      << ReadFile(output);
  // on most machines it evaluates by then, at the end on all of them
  std::this_thread::sleep_for(std::chrono::seconds(2));
  process.Signal(SIGINT);
  // the last evaluation begins
  ASSERT_TRUE(AwaitText(output, "ends at step")) << ReadFile(output);
  // two that follow closely would count as one (StopSignal)
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  process.Signal(SIGINT);
  const auto status = process.Wait(std::chrono::minutes(2));
  ASSERT_TRUE(status.has_value()) << ReadFile(output);
  EXPECT_TRUE(status->ok()) << ReadFile(output);
  EXPECT_THAT(ReadFile(output), HasSubstr("is given up"));
}

TEST_F(LockstepTest, AMistakeIsOneClearLine) {
  const CommandResult key = RunShort("x", {"agent.discunt=0.9"});
  EXPECT_EQ(key.status.code, 1);
  EXPECT_THAT(key.output, HasSubstr("agent.discunt: unknown key"));
  const CommandResult task = RunShort("x", {"task.name=cartpole-swingupp"});
  EXPECT_EQ(task.status.code, 1);
  EXPECT_THAT(task.output, HasSubstr("cartpole-swingup"));
  const CommandResult v_max = RunShort("x", {"agent.distribution.v_max=10"});
  EXPECT_EQ(v_max.status.code, 1);
  EXPECT_THAT(v_max.output, HasSubstr("v_max"));
}

}  // namespace
}  // namespace replicant
