// The program `fleet` with the real roles: whole trainings, seconds long, and
// what `evaluator` says of them.
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
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/process.h"
#include "core/rpc/socket.h"

namespace replicant {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// The process of a role that a fleet has started.
pid_t ProcessOf(pid_t fleet, const std::string& role) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    std::string name;
    std::string parent;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      if (line.starts_with("PPid:\t")) parent = line.substr(6);
    }
    if (name == role && parent == std::to_string(fleet)) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return 0;
}

class TrainingTest : public ::testing::Test {
 protected:
  // A shipped recipe, made small, on ports of its own.
  std::vector<std::string> Command(
      const std::vector<std::string>& more_settings,
      const std::string& recipe = "cartpole_swingup_state") const {
    std::vector<std::string> command = {
        REPLICANT_FLEET, "--config",
        fmt::format("{}/configs/{}.yaml", REPLICANT_SOURCE_DIR, recipe)};
    std::vector<std::string> settings = {
        "run.dir=" + run_.string(),
        "agent.networks.policy_hidden_sizes=[16]",
        "agent.networks.critic_hidden_sizes=[16]",
        "learner.limits.max_steps=50",
        "actors.exploration.random_steps=50",
        "evaluation.episodes=2",
        "evaluation.video={height: 24, width: 32}",
        "replay.bind=ipc://" + (folder_.path() / "r").string(),
        "learner.parameter_bind=ipc://" + (folder_.path() / "p").string(),
        "replay.tables.default.rate_limiter.min_size_to_sample=100"};
    settings.insert(settings.end(), more_settings.begin(), more_settings.end());
    for (const std::string& setting : settings) {
      command.insert(command.end(), {"--set", setting});
    }
    return command;
  }
  CommandResult RunFleet(const std::vector<std::string>& settings) const {
    return RunCommand({.command = Command(settings)}, std::chrono::minutes(3));
  }
  // The fleet, with a learner of two processes, while it runs: until it is told
  // to stop.
  Process StartReplicas(double heartbeat_timeout_s = 10.0) const {
    const std::vector<std::string> settings = {
        "learner.limits.max_steps=0", "learner.checkpoint_interval_s=0.3",
        "evaluation.enabled=false", "learner.log_interval_s=0.1",
        fmt::format("learner.replication={{strategy: between_graph, replicas: "
                    "2, heartbeat_timeout_s: {}}}",
                    heartbeat_timeout_s)};
    return Process({.command = Command(settings),
                    .stdout_file = folder_.path() / "out",
                    .stderr_file = folder_.path() / "out"});
  }
  std::string Output() const { return ReadFile(folder_.path() / "out"); }
  // Whether `text` comes to stand in the file within three minutes.
  static bool AwaitFile(const std::filesystem::path& file,
                        const std::string& text) {
    const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
    while (Clock::Real().Now() < deadline) {
      if (std::filesystem::exists(file) &&
          ReadFile(file).find(text) != std::string::npos) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  CommandResult RunEvaluator(std::vector<std::string> words) const {
    words.insert(words.begin(), REPLICANT_EVALUATOR);
    return RunCommand({.command = words}, std::chrono::minutes(3));
  }

  // Lines of the run's evaluations.
  std::vector<std::string> Evaluations() const {
    std::vector<std::string> lines;
    std::ifstream file(run_ / "evaluations.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // What ffprobe says of a video: width, height and number of frames.
  static std::string Describe(const std::filesystem::path& video) {
    return RunCommand({.command = {"ffprobe", "-v", "error", "-count_frames",
                                   "-show_entries",
                                   "stream=width,height,nb_read_frames", "-of",
                                   "csv=p=0", video}},
                      std::chrono::minutes(3))
        .output;
  }

  TemporaryFolder folder_;
  std::filesystem::path run_ = folder_.path() / "run";
};

// A run without actors: the learner's processes alone, to the same end on every
// strategy.
TEST_F(TrainingTest, TrainsImageModelsOnReplicas) {
  for (const char* recipe : {"resnet18_synthetic", "sngan32_synthetic"}) {
    for (const char* replication : {
           "{strategy: single}", "{strategy: in_graph, replicas: 2}"
#if REPLICANT_MPI
               ,
               "{strategy: between_graph, replicas: 2}",
               "{strategy: between_graph, replicas: 4, replicas_per_process: 2}"
#endif
         }) {
      const CommandResult result = RunCommand(
          {.command = {REPLICANT_FLEET, "--config",
                       fmt::format("{}/configs/{}.yaml", REPLICANT_SOURCE_DIR,
                                   recipe),
                       "--set", "run.dir=" + run_.string(), "--set",
                       fmt::format("learner.replication={}", replication),
                       "--set", "learner.limits.max_steps=4", "--set",
                       "learner.batch_size=8", "--set", "resnet50.width=4",
                       "--set", "sngan.generator_channels=4", "--set",
                       "sngan.discriminator_channels=4"}},
          std::chrono::minutes(3));
      EXPECT_TRUE(result.status.ok()) << result.output;
      EXPECT_THAT(result.output, HasSubstr("workload"));
      EXPECT_THAT(result.output, Not(HasSubstr("to evaluate")));
      EXPECT_TRUE(std::filesystem::exists(
          run_ / "checkpoints/step-000000000004/variables.safetensors"))
          << recipe << ", " << replication;
      EXPECT_FALSE(std::filesystem::exists(run_ / "logs" / "actor-0.1.log"));
      std::filesystem::remove_all(run_);
    }
  }
}

TEST_F(TrainingTest, TrainsAndLeavesAFolder) {
  const CommandResult result = RunFleet({});
  EXPECT_TRUE(result.status.ok()) << result.output;
  for (const char* name :
       {"config.yaml", "run.yaml", "learner.jsonl", "curve.png",
        "checkpoints/step-000000000050/variables.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(run_ / name)) << name;
  }
  EXPECT_THAT(ReadFile(run_ / "logs" / "actor-0.1.log"),
              HasSubstr("ends after"));
  EXPECT_FALSE(std::filesystem::is_empty(run_ / "replay"));

  // the last policy was tried out, and filmed
  ASSERT_FALSE(Evaluations().empty()) << result.output;
  EXPECT_THAT(
      Evaluations().back(),
      MatchesRegex(".*\"step\":50,\"frames\":[0-9]+,\"episodes\":2,.*"));
  const auto video = run_ / "videos" / "step-000000000050.mp4";
  // 1000 control steps, 8 at a time
  EXPECT_EQ(Describe(video), "32,24,126\n");
  for (const std::string& row :
       {std::string("task                cartpole-swingup from state\n"),
        std::string("status              complete: learner-0 has completed the "
                    "run: step limit\n"),
        std::string("updates             50 ("),
        std::string("samples per insert  "),
        std::string("last return         "),
        std::string("(2 episodes) at step 50, "),
        "learning curve      " + run_.string() + "/curve.png\n",
        "video               " + video.string() + "\n",
        "/fleet --resume " + run_.string() + "\n",
        "/evaluator --checkpoint " + run_.string() +
            " --episodes 2 --video\n"}) {
    EXPECT_THAT(result.output, HasSubstr(row));
  }
}

TEST_F(TrainingTest, TrainsOnReplicasInOneProcess) {
  const CommandResult result =
      RunFleet({"evaluation.enabled=false",
                "learner.replication={strategy: in_graph, replicas: 2}"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("updates             50 ("));
}

TEST_F(TrainingTest, TrainsFromPixelsOnReplicas) {
  for (const char* recipe : {
         "cartpole_swingup_pixels_in_graph"
#if REPLICANT_MPI
             ,
             "cartpole_swingup_pixels_mpi"
#endif
       }) {
    const CommandResult result = RunCommand(
        {.command =
             Command({"evaluation.enabled=false", "learner.limits.max_steps=4",
                      "learner.batch_size=8", "agent.random_shift=2",
                      "task.pixels.height=24", "task.pixels.width=24",
                      "task.pixels.frame_stack=2"},
                     recipe)},
        std::chrono::minutes(3));
    EXPECT_TRUE(result.status.ok()) << result.output;
    EXPECT_THAT(result.output, HasSubstr("from pixels, 24x24, 2 frames"));
    EXPECT_THAT(result.output, HasSubstr("updates             4 ("));
    std::filesystem::remove_all(run_);
  }
}

#if REPLICANT_MPI
TEST_F(TrainingTest, TrainsOnReplicasUnderMpiAndGoesOn) {
  const CommandResult result =
      RunFleet({"evaluation.enabled=false",
                "learner.replication={strategy: between_graph, replicas: 2}"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("updates             50 ("));
  const CommandResult resumed =
      RunCommand({.command = {REPLICANT_FLEET, "--resume", run_.string(),
                              "--set", "learner.limits.max_steps=80"}},
                 std::chrono::minutes(3));
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  EXPECT_TRUE(std::filesystem::exists(run_ / "checkpoints/step-000000000080"));
}

TEST_F(TrainingTest, AStopReachesReplicasUnderMpi) {
  Process fleet = StartReplicas();
  const auto log = run_ / "logs" / "learner-0.1.log";
  // it has learned something
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << Output();
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
  // with a checkpoint of the last step
  std::smatch end;
  const std::string text = ReadFile(log);
  ASSERT_TRUE(std::regex_search(text, end, std::regex("ends at step (\\d+)")))
      << text;
  EXPECT_TRUE(std::filesystem::exists(
      run_ / "checkpoints" / fmt::format("step-{:012}", std::stoll(end[1]))))
      << Output();
}

// Somebody stops the learner alone: the run has not come to its end by that.
TEST_F(TrainingTest, ALearnerThatIsStoppedByHandComesBack) {
  const auto output = folder_.path() / "output";
  Process fleet({.command = Command({"learner.limits.max_steps=0",
                                     "learner.checkpoint_interval_s=0.3",
                                     "fleet.restart.learner.initial_backoff_s="
                                     "0.1"}),
                 .stdout_file = output,
                 .stderr_file = output});
  const auto log = run_ / "logs" / "learner-0.1.log";
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << ReadFile(output);
  ASSERT_EQ(::kill(ProcessOf(fleet.pid(), "learner"), SIGTERM), 0);
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "learner-0.2.log",
                        "goes on from the checkpoint of step"))
      << ReadFile(output);
  fleet.Signal(SIGINT);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status && status->ok()) << ReadFile(output);
  const std::string text = ReadFile(output);
  EXPECT_THAT(text, HasSubstr("learner-0: exit code 1; starts again"));
  EXPECT_THAT(text, HasSubstr("status              stopped: stopped by a "
                              "signal\n"));
}

// The process of a rank of a run's learner.
pid_t ReplicaOf(const std::filesystem::path& run, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto holds = [&](const char* file, const std::string& text) {
      std::ifstream in(entry.path() / file);
      const std::string all{std::istreambuf_iterator<char>(in), {}};
      return all.find(text) != std::string::npos;
    };
    if (holds("environ", fmt::format("OMPI_COMM_WORLD_RANK={}", rank)) &&
        holds("cmdline", run.string())) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return 0;
}

TEST_F(TrainingTest, AReplicaThatIsKilledEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas();
  const auto log = run_ / "logs" / "learner-0.1.log";
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << Output();
  const pid_t replica = ReplicaOf(run_, 1);
  ASSERT_GT(replica, 0);
  ::kill(replica, SIGKILL);
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "learner-0.2.log",
                        "goes on from the checkpoint of step"))
      << Output();
  // who it was
  EXPECT_THAT(ReadFile(log), AllOf(HasSubstr("process rank 1 with PID"),
                                   HasSubstr("exited on signal 9")));
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
}

TEST_F(TrainingTest, AReplicaThatStandsStillEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas(/*heartbeat_timeout_s=*/2.0);
  // the second one, and then the first one of those that were started again
  for (const int rank : {1, 0}) {
    const int incarnation = 2 - rank;
    const auto log_of = [&](int number) {
      return run_ / "logs" / fmt::format("learner-0.{}.log", number);
    };
    ASSERT_TRUE(AwaitFile(log_of(incarnation), "stood still for")) << Output();
    const pid_t replica = ReplicaOf(run_, rank);
    ASSERT_GT(replica, 0);
    ::kill(replica, SIGSTOP);
    ASSERT_TRUE(AwaitFile(log_of(incarnation + 1),
                          "goes on from the checkpoint of step"))
        << Output();
    EXPECT_THAT(ReadFile(log_of(incarnation)),
                ContainsRegex(fmt::format(
                    "rank {} of 2 ends: rank {} of 2 \\([^ ]+\\) was not heard "
                    "of for 2 s; waited for in call [0-9]+, ",
                    1 - rank, rank)));
  }
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
}
#endif

TEST_F(TrainingTest, AnEvaluationByHandAddsNothingToTheRun) {
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
  EXPECT_NE(
      RunEvaluator({"--checkpoint", run_, "--episodes", "3", "--seed", "5"})
          .output,
      newest.output);
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

TEST_F(TrainingTest, AMistakeOfAnEvaluationIsOneClearLine) {
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
            "evaluator: --video: only with --checkpoint; hint: "
            "evaluation.video says what is filmed beside a training\n");
  EXPECT_THAT(message({}),
              HasSubstr("evaluator: --config FILE or --checkpoint is missing"));
}

TEST_F(TrainingTest, AGoodReturnEndsTheRun) {
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
  EXPECT_FALSE(std::filesystem::exists(run_ / "videos"));
}

TEST_F(TrainingTest, AKilledEvaluatorComesBackAndTheTrainingGoesOn) {
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
  // also when it is asked to end by somebody who is not the fleet
  for (const int signal : {SIGKILL, SIGTERM}) {
    const size_t num_before = Evaluations().size();
    ASSERT_EQ(::kill(ProcessOf(fleet.pid(), "evaluator"), signal), 0);
    ASSERT_TRUE(await([&] {
      return ReadFile(output).find(signal == SIGKILL
                                       ? "evaluator-0: signal 9 (Killed); "
                                         "starts again"
                                       : "evaluator-0: exit code 1; starts "
                                         "again") != std::string::npos;
    })) << ReadFile(output);
    ASSERT_TRUE(await(has_evaluated(num_before + 2))) << ReadFile(output);
  }
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

// A run that has ended goes on from its last checkpoint with all its parts,
// and by what --set changes.
TEST_F(TrainingTest, AnEndedRunIsResumedAsAWhole) {
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
              HasSubstr("goes on from the checkpoint of step 50"));
  EXPECT_THAT(ReadFile(run_ / "logs" / "replay-0.2.log"),
              HasSubstr("of id 1 and"));
  EXPECT_THAT(ReadFile(checkpoint(80) / "manifest.yaml"),
              HasSubstr("step: 80\nid: 2\ninput: true"));
  EXPECT_TRUE(ReadFile(checkpoint(50) / "variables.safetensors") == variables);
  EXPECT_THAT(ReadFile(run_ / "config.yaml"), HasSubstr("max_steps: 80"));
}

// The newest checkpoint's part in the replay is damaged: the one before it
// counts.
TEST_F(TrainingTest, ADamagedReplayGoesBackOneCheckpointMore) {
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
              HasSubstr("goes on from the checkpoint of step 50"));
  EXPECT_TRUE(std::filesystem::exists(
      run_ / "checkpoints/step-000000000100/manifest.yaml"));
}

TEST_F(TrainingTest, AMistakeStartsNothing) {
  const auto expect = [&](const std::string& setting,
                          const std::string& message) {
    const CommandResult result = RunFleet({setting});
    EXPECT_EQ(result.status.code, 1) << setting;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(run_)) << setting;
  };
  expect("learner.limit.max_steps=5", "unknown key");
  expect("actors.count=0", "actors.count");
  expect("task.name=cartpole-swingu", "cartpole-swingup");
  expect("agent.distribution.v_max=10", "v_max");
  expect("run.dir=/proc/none", "/proc/none");
  expect("evaluation.video.camera=nowhere", "nowhere");
  expect("evaluation={enabled: false, stop_at_return: 5}",
         "evaluation.stop_at_return: needs evaluations");
  expect("task.suite_folder=/nowhere", "/nowhere");
  expect("task.pixels={enabled: true, camera: front}", "front");
  expect("agent.random_shift=4", "agent.random_shift: wants pixels");
  expect("replay.bind=tcp://*:0", "replay.bind");
}

// A file that may not grow is what a full disk looks like to its writer.
TEST_F(TrainingTest, ADiskThatFillsUpEndsTheRun) {
  const auto run_with = [&](int limit_of_half_kib) {
    std::vector<std::string> command = {"sh", "-c",
                                        "trap '' XFSZ; ulimit -f " +
                                            std::to_string(limit_of_half_kib) +
                                            "; exec \"$@\"",
                                        "sh"};
    const auto fleet = Command({"agent.networks.critic_hidden_sizes=[256, 256]",
                                "fleet.restart.learner.budget=0"});
    command.insert(command.end(), fleet.begin(), fleet.end());
    return RunCommand({.command = command}, std::chrono::minutes(3));
  };
  const CommandResult at_first = run_with(1);
  EXPECT_EQ(at_first.status.code, 1);
  EXPECT_THAT(at_first.output,
              MatchesRegex("fleet: run folder .*: File too large; hint: .*\n"));
  std::filesystem::remove_all(run_);
  const CommandResult later = run_with(100);
  EXPECT_EQ(later.status.code, 1);
  EXPECT_THAT(later.output, HasSubstr("learner: write: "));
  EXPECT_THAT(later.output, HasSubstr(": File too large\n"));
}

TEST_F(TrainingTest, AnAddressInUseIsNamed) {
  rpc::ZmqContext context;
  rpc::ZmqSocket socket(context, rpc::SocketType::kRouter);
  const std::string endpoint = socket.Bind("tcp://127.0.0.1:*");
  const CommandResult result = RunFleet({"replay.bind=" + endpoint});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.output,
              HasSubstr("fleet: replay.bind: bind " + endpoint +
                        ": Address already in use; hint: another process "
                        "listens there"));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

}  // namespace
}  // namespace replicant
