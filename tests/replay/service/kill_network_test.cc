// Kills the processes of a replay, over tcp: the service while writers and
// readers run, and then those. REPLICANT_REPLAY_KILLS=100 makes it long;
// scripts/checks/replay_soak does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

#include "base/fs.h"
#include "base/rng.h"
#include "tests/replay/service/replay_load.h"
#include "tests/replay/service/service_process.h"

namespace replicant::replay::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A replay_load process and its report.
class Load {
 public:
  Load(const ServiceProcess& service, const std::string& what,
       const std::string& name)
      : name_(name),
        report_(service.folder() / (name + ".report")),
        process_({.command = {REPLICANT_REPLAY_LOAD, what, service.endpoint(),
                              (service.folder() / (name + ".report")).string()},
                  .stderr_file = service.folder() / (name + ".log")}) {}

  const std::string& name() const { return name_; }
  LoadReport& report() { return *report_; }
  Process& process() { return process_; }

 private:
  const std::string name_;
  LoadReportFile report_;
  Process process_;
};

// Whether the process comes so far within a minute.
template <typename Done>
bool Await(Load& load, const Done& is_done) {
  const auto give_up = Clock::Real().Now() + std::chrono::seconds(60);
  while (!is_done()) {
    if (Clock::Real().Now() > give_up ||
        load.process().Wait(std::chrono::milliseconds(1)).has_value()) {
      return false;
    }
  }
  return true;
}

// Whether it gets `count` more rounds done.
bool GoesOn(Load& load, int64_t count) {
  const int64_t goal = load.report().rounds.load() + count;
  return Await(load, [&] { return load.report().rounds.load() >= goal; });
}

// Whether the service has some of its steps: a round's may wait to be sent.
bool IsHeard(Load& writer) {
  return Await(writer, [&] { return writer.report().steps.load() > 0; });
}

std::string Settings(const std::filesystem::path& folder,
                     const std::string& durability) {
  return "  observation_bytes: 16\n"
         "  action_bytes: 8\n"
         // more than a living process may be held up
         "  peer_timeout_s: 4\n"
         "  tables:\n"
         "    default:\n"
         "      max_size: 3000\n"
         "      n_step: 3\n"
         "      rate_limiter:\n"
         "        mode: min_size\n"
         "        min_size_to_sample: 10\n"
         "  checkpoint_interval_s: 0.1\n"
         "  durability: " +
         durability +
         "\n  checkpoint_folder: " + (folder / "checkpoints").string() + "\n";
}

int NumKills() {
  const char* text = std::getenv("REPLICANT_REPLAY_KILLS");
  return text == nullptr ? 4 : std::atoi(text);
}

void KillTheService(const std::string& durability) {
  const TemporaryFolder folder;
  ServiceProcess service(REPLICANT_REPLAY, folder.path(),
                         Settings(folder.path(), durability));
  service.Start();
  Load writers[] = {{service, "write", "w0"}, {service, "write", "w1"}};
  Load reader(service, "read", "reader");
  RandomStream random(durability == "journal" ? 1 : 2, "kills");
  for (int i = 0; i < NumKills(); ++i) {
    SCOPED_TRACE(i);
    // a random moment, within some checkpoints
    ASSERT_TRUE(GoesOn(writers[i % 2], 1 + random.UniformInt(60)));
    service.Kill();
    service.Start();
    EXPECT_THAT(service.log(), Not(HasSubstr(" E replay/")));
    // nobody stays behind, and a reader that got a torn item would have ended
    for (Load& writer : writers) ASSERT_TRUE(GoesOn(writer, 2));
    ASSERT_TRUE(GoesOn(reader, 2)) << ContentsOf(folder.path() / "reader.log");
  }
  int64_t acknowledged = 0;
  for (Load& writer : writers) {
    writer.process().Signal(SIGTERM);
    const auto end = writer.process().Wait(std::chrono::seconds(60));
    ASSERT_TRUE(end.has_value() && end->ok());
    acknowledged += writer.report().steps.load();
  }
  const nlohmann::json counts = service.Status()["counts"];
  const auto inserted = counts["inserted_steps"].get<int64_t>();
  const auto lost = counts["lost_steps"].get<int64_t>();
  std::printf("%d kills, %s: %ld steps acknowledged, %ld lost\n", NumKills(),
              durability.c_str(), static_cast<long>(acknowledged),
              static_cast<long>(lost));
  // every step that was acknowledged is in, or stated as lost
  EXPECT_EQ(acknowledged, inserted + lost);
  if (durability == "journal") {
    EXPECT_EQ(lost, 0);
  }
  EXPECT_TRUE(service.Stop().ok());
}

TEST(ReplayKillNetworkTest, AKilledServiceStatesHowManyStepsWereLost) {
  KillTheService("checkpoint");
}

TEST(ReplayKillNetworkTest, AKilledServiceWithAJournalHasLostNone) {
  KillTheService("journal");
}

TEST(ReplayKillNetworkTest, KilledWritersAndReadersLeaveNothingBehind) {
  const TemporaryFolder folder;
  ServiceProcess service(REPLICANT_REPLAY, folder.path(),
                         Settings(folder.path(), "checkpoint"));
  service.Start();
  Load writer(service, "write", "stays");
  Load reader(service, "read", "stays-too");
  const int num_kills = NumKills();
  for (int i = 0; i < num_kills; ++i) {
    Load killed_writer(service, "write", "w" + std::to_string(i));
    Load killed_reader(service, "read", "r" + std::to_string(i));
    ASSERT_TRUE(GoesOn(killed_writer, 1 + i % 7) && IsHeard(killed_writer));
    ASSERT_TRUE(GoesOn(killed_reader, 1 + i % 7));
    killed_writer.process().Signal(SIGKILL);
    killed_reader.process().Signal(SIGKILL);
    // the others do not wait for their timeouts
    ASSERT_TRUE(GoesOn(writer, 3));
    ASSERT_TRUE(GoesOn(reader, 3));
  }
  const nlohmann::json status =
      service.AwaitStatus([&](const nlohmann::json& now) {
        return now["writers"] == 1 && now["network"]["peers"] == 3 &&
               now["counts"]["expired_writers"] == num_kills;
      });
  EXPECT_EQ(status["writers"], 1);
  EXPECT_EQ(status["counts"]["expired_writers"], num_kills);
  // the living two, and whoever asks; every request of the dead is forgotten
  EXPECT_EQ(status["network"]["peers"], 3);
  EXPECT_LE(status["network"]["unanswered"].get<int64_t>(), 5);
  // 3000 items of episodes of 43 steps in chunks of 4, and one open episode
  EXPECT_LE(status["memory"]["groups"].get<int64_t>(), (3000 / 43 + 3) * 11);
  // the last one's end frees what is left of it
  writer.process().Signal(SIGTERM);
  writer.process().Wait();
  EXPECT_EQ(service.Status()["writers"], 0);
}

}  // namespace
}  // namespace replicant::replay::testing
