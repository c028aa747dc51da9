// The program `replay`, from its command line to its exit code.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/fs.h"
#include "base/process.h"
#include "replay/client/step_writer.h"
#include "tests/replay/episodes.h"

namespace replicant::replay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A service with its own folder, stopped by SIGTERM.
class ReplayMainTest : public ::testing::Test {
 protected:
  ReplayMainTest() {
    std::ofstream(folder_ / "run.yaml")
        << "replay:\n"
           "  bind: 'tcp://127.0.0.1:*'\n"
           "  metrics_address: 127.0.0.1:0\n"
           "  observation_bytes: 16\n"
           "  action_bytes: 8\n"
           "  checkpoint_folder: "
        << (folder_ / "checkpoints").string() << "\n";
  }

  // Starts the service and returns where it listens.
  std::string Start(const std::string& log) {
    const auto log_file = folder_ / log;
    process_.reset();
    process_ = std::make_unique<Process>(
        ProcessOptions{.command = {REPLICANT_REPLAY, "--config",
                                   (folder_ / "run.yaml").string()},
                       .stderr_file = log_file});
    const std::string key = "listening at ";
    const auto give_up = Clock::Real().Now() + seconds(60);
    while (Clock::Real().Now() < give_up) {
      const std::string text = Contents(log_file);
      const size_t begin = text.find(key);
      const size_t end = text.find('\n', begin);
      if (begin != std::string::npos && end != std::string::npos) {
        return text.substr(begin + key.size(), end - begin - key.size());
      }
      // the file grows until then
      if (process_->Wait(milliseconds(5)).has_value()) break;
    }
    ADD_FAILURE() << "the service does not listen: " << Contents(log_file);
    return "";
  }
  ExitStatus StopService() {
    process_->Signal(SIGTERM);
    return process_->Wait(seconds(60)).value_or(ExitStatus{.code = -2});
  }
  std::string Status(const std::string& endpoint) {
    const auto result = RunCommand(
        {.command = {REPLICANT_REPLAY, "--status", endpoint}}, seconds(60));
    EXPECT_TRUE(result.status.ok()) << result.output;
    return result.output;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
  std::unique_ptr<Process> process_;
};

TEST_F(ReplayMainTest, AStoppedServiceGoesOnWithWhatItHeld) {
  const testing::EpisodeMaker maker;
  std::string endpoint = Start("first.log");
  {
    StepWriter writer(
        {.endpoint = endpoint, .shape = maker.shape, .group_steps = 4});
    writer.BeginEpisode();
    const auto deadline = Clock::Real().Now() + seconds(60);
    for (int64_t t = 0; t < 10; ++t) {
      ASSERT_EQ(writer.Append({.observation = maker.Observation(1, t),
                               .action = maker.Action(1, t)},
                              deadline),
                AppendResult::kOk);
    }
    ASSERT_EQ(writer.EndEpisode(maker.Observation(1, 10), {}, deadline),
              AppendResult::kOk);
    ASSERT_TRUE(writer.Flush(deadline));
  }
  const std::string table =
      "table 'default': 10 of 1000000 items, 10 inserts, 0 samples";
  EXPECT_NE(Status(endpoint).find(table), std::string::npos);
  EXPECT_TRUE(StopService().ok());
  EXPECT_NE(Contents(folder_ / "first.log").find("saved checkpoint 1"),
            std::string::npos);

  endpoint = Start("second.log");
  EXPECT_NE(Status(endpoint).find(table), std::string::npos);
  EXPECT_TRUE(StopService().ok());
}

TEST_F(ReplayMainTest, SaysInOneLineWhyItCannotServe) {
  const auto run = [this](std::vector<std::string> options) {
    std::vector<std::string> command = {REPLICANT_REPLAY, "--config",
                                        (folder_ / "run.yaml").string()};
    command.insert(command.end(), options.begin(), options.end());
    const auto result = RunCommand({.command = command}, seconds(60));
    EXPECT_EQ(result.status.code, 1);
    return result.output;
  };
  EXPECT_EQ(run({"--set", "replay.credits=0"}).substr(0, 53),
            "replay: --set replay.credits=0: replay.credits: 0 is ");
  EXPECT_NE(run({"--set", "replay.bind=tcp://0.0.0.0:*"}).find("loopback"),
            std::string::npos);
  const auto nobody = RunCommand(
      {.command = {REPLICANT_REPLAY, "--status", "nonsense"}}, seconds(60));
  EXPECT_EQ(nobody.status.code, 1);
}

}  // namespace
}  // namespace replicant::replay
