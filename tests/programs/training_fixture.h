#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/process.h"

// The common base of tests of whole trainings. They are told of the programs by
// REPLICANT_FLEET and REPLICANT_EVALUATOR.
namespace replicant {

// The process of a role that a fleet has started.
inline pid_t ProcessOf(pid_t fleet, const std::string& role) {
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

// The same for the process with `option` and `value` in its command line.
inline pid_t ProcessOf(pid_t fleet, const std::string& option,
                       const std::string& value) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    bool is_of_fleet = false;
    for (std::string line; std::getline(status, line);) {
      is_of_fleet |= line == "PPid:\t" + std::to_string(fleet);
    }
    if (!is_of_fleet) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string last;
    for (std::string word; std::getline(file, word, '\0'); last = word) {
      if (last == option && word == value) {
        return std::stoi(entry.path().filename().string());
      }
    }
  }
  return 0;
}

class TrainingFixture : public ::testing::Test {
 protected:
  // A shipped recipe, made small.
  std::vector<std::string> Command(
      const std::vector<std::string>& more_settings,
      const std::string& recipe = "cartpole_swingup_state") const {
    std::vector<std::string> command = {
        REPLICANT_FLEET, "--config",
        fmt::format("{}/configs/{}.yaml", REPLICANT_SOURCE_DIR, recipe)};
    std::vector<std::string> settings = {
        "run.dir=" + run_.string(), "agent.networks.policy_hidden_sizes=[16]",
        "agent.networks.critic_hidden_sizes=[16]",
        "learner.limits.max_seconds=0", "learner.limits.max_steps=50",
        "actors.exploration.random_steps=50", "evaluation.episodes=2",
        "evaluation.video={height: 24, width: 32}",
        "replay.tables.default.rate_limiter.min_size_to_sample=100",
        // a process that starves is not taken for one that hangs
        "fleet.start_timeout_s=300", "fleet.heartbeat_timeout_s=300",
        "fleet.stop_timeout_s=300"};
    settings.insert(settings.end(), more_settings.begin(), more_settings.end());
    for (const std::string& setting : settings) {
      command.insert(command.end(), {"--set", setting});
    }
    return command;
  }
  CommandResult RunFleet(const std::vector<std::string>& settings) const {
    return RunCommand({.command = Command(settings)}, std::chrono::minutes(3));
  }
  // Trains on replicas, `replication` in YAML, and resumes the run.
  void ExpectTrainsAndGoesOn(const std::string& replication) const {
    const CommandResult result = RunFleet(
        {"evaluation.enabled=false", "learner.replication=" + replication});
    EXPECT_TRUE(result.status.ok()) << result.output;
    EXPECT_THAT(result.output,
                ::testing::HasSubstr("updates             50 ("));
    const CommandResult resumed =
        RunCommand({.command = {REPLICANT_FLEET, "--resume", run_.string(),
                                "--set", "learner.limits.max_steps=80"}},
                   std::chrono::minutes(3));
    EXPECT_TRUE(resumed.status.ok()) << resumed.output;
    EXPECT_TRUE(
        std::filesystem::exists(run_ / "checkpoints/step-000000000080"));
  }
  // The fleet, with a learner of two processes, while it runs: until it is told
  // to stop.
  Process StartReplicas(double heartbeat_timeout_s = 10.0,
                        const std::string& communicator = "mpi") const {
    const std::vector<std::string> settings = {
        "learner.limits.max_steps=0", "learner.checkpoint_interval_s=0.3",
        "evaluation.enabled=false", "learner.log_interval_s=0.1",
        fmt::format("learner.replication={{strategy: between_graph, replicas: "
                    "2, heartbeat_timeout_s: {}, communicator: {}}}",
                    heartbeat_timeout_s, communicator)};
    return Process({.command = Command(settings),
                    .stdout_file = folder_.path() / "out",
                    .stderr_file = folder_.path() / "out"});
  }
  std::string Output() const { return ReadFile(folder_.path() / "out"); }
  // Whether `text` comes to stand in the file within three minutes.
  static bool AwaitFile(const std::filesystem::path& file,
                        const std::string& text) {
    return Await([&] { return Holds(file, text); });
  }
  // Whether `is_reached` comes to return true within three minutes.
  static bool Await(const std::function<bool()>& is_reached) {
    const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
    while (!is_reached()) {
      if (Clock::Real().Now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  // Whether the file is there and has the text.
  static bool Holds(const std::filesystem::path& file,
                    const std::string& text) {
    return std::filesystem::exists(file) &&
           ReadFile(file).find(text) != std::string::npos;
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
  // ffprobe's description of a video: width, height and number of frames.
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

}  // namespace replicant
