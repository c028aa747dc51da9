// What happens to a learner that keeps frames when processes are killed,
// stopped or set back. The learner is a replay_load reader, which ends at the
// first frame of another step. Each case prints how long the learner took to
// come back to nine tenths of its rate.
//
// REPLICANT_PARTITION_S=60 makes the partitions long;
// scripts/checks/frame_store does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

#include "base/fs.h"
#include "tests/replay/service/replay_load.h"
#include "tests/replay/service/service_process.h"

namespace replicant::replay::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kTableSize = 3000;
constexpr int64_t kLargeStore = int64_t{1} << 30;
// A batch each 5 ms, so that others on the machine change the rate little.
constexpr const char* kReaderPause = "5";
constexpr const char* kActorPause = "50";
constexpr auto kWindow = milliseconds(500);
constexpr double kShareOfRate = 0.9;

seconds PartitionTime() {
  const char* text = std::getenv("REPLICANT_PARTITION_S");
  return seconds(text == nullptr ? 2 : std::atoi(text));
}

std::string Settings(const std::filesystem::path& folder) {
  return "  observation_bytes: 16\n"
         "  action_bytes: 8\n"
         "  frame_bytes: " +
         std::to_string(kLoadFrameBytes) +
         "\n"
         "  tables:\n"
         "    default:\n"
         "      max_size: " +
         std::to_string(kTableSize) +
         "\n"
         "      n_step: 3\n"
         "      stack: " +
         std::to_string(kLoadStack) +
         "\n"
         "      rate_limiter:\n"
         "        mode: min_size\n"
         "        min_size_to_sample: 10\n"
         "  checkpoint_interval_s: 0.5\n"
         "  checkpoint_folder: " +
         (folder / "checkpoints").string() + "\n";
}

// A service, an actor and a learner.
class FrameStoreRecoveryTest : public ::testing::Test {
 protected:
  // Starts them with a store of `store_bytes`; returns once the table is full.
  void Begin(int64_t store_bytes = kLargeStore) {
    store_bytes_ = store_bytes;
    service_.Start();
    actor_ = std::make_unique<Process>(ProcessOptions{
        .command = {REPLICANT_REPLAY_LOAD, "write-frames", service_.endpoint(),
                    Path("actor.report"), kActorPause},
        .stderr_file = Path("actor.log")});
    const nlohmann::json status = service_.AwaitStatus(
        [](const auto& now) { return now["tables"][0]["size"] == kTableSize; });
    ASSERT_EQ(status["tables"][0]["size"], kTableSize);
    StartLearner();
  }
  void StartLearner() {
    const std::string name = "learner-" + std::to_string(num_learners_++);
    report_ = std::make_unique<LoadReportFile>(Path(name + ".report"));
    log_ = Path(name + ".log");
    learner_ = std::make_unique<Process>(
        ProcessOptions{.command = {REPLICANT_REPLAY_LOAD, "read-frames",
                                   service_.endpoint(), Path(name + ".report"),
                                   kReaderPause, std::to_string(store_bytes_)},
                       .stderr_file = log_});
  }
  void KillLearner() {
    learner_->Signal(SIGKILL);
    learner_->Wait();
  }

  // Batches per second over a window.
  double Rate() {
    const int64_t before = (*report_)->rounds;
    const auto begin = Clock::Real().Now();
    std::this_thread::sleep_for(kWindow);
    return static_cast<double>((*report_)->rounds - before) /
           ToSeconds(Clock::Real().Now() - begin);
  }
  // Returns once nine tenths of the drawn frames are kept: the newest ones may
  // be drawn before they come.
  void AwaitHits() {
    const auto give_up = Clock::Real().Now() + seconds(60);
    LoadReport& now = **report_;
    double share = 0.0;
    while (share < 0.9 && Clock::Real().Now() < give_up) {
      const int64_t drawn = now.drawn_frames;
      const int64_t kept = now.drawn_kept_frames;
      std::this_thread::sleep_for(milliseconds(200));
      share =
          static_cast<double>(now.drawn_kept_frames - kept) /
          static_cast<double>(std::max<int64_t>(1, now.drawn_frames - drawn));
    }
    EXPECT_GE(share, 0.9) << ContentsOf(log_);
  }
  // Does `what` to a learner at its rate, and waits until it is there again.
  void Disturb(const std::string& name, const std::function<void()>& what) {
    AwaitHits();
    const double before = Rate();
    what();
    const auto begin = Clock::Real().Now();
    const auto give_up = begin + seconds(60);
    double rate = 0.0;
    while (rate < kShareOfRate * before && Clock::Real().Now() < give_up &&
           !learner_->Wait(milliseconds(0)).has_value()) {
      rate = Rate();
    }
    const double back_s = ToSeconds(Clock::Real().Now() - begin);
    AwaitHits();
    std::printf(
        "%s: %.0f batches/s before, back within %.1f s, all frames kept within "
        "%.1f s\n",
        name.c_str(), before, back_s, ToSeconds(Clock::Real().Now() - begin));
    EXPECT_GE(rate, kShareOfRate * before) << ContentsOf(log_);
    // it ends at a wrong frame
    EXPECT_FALSE(learner_->Wait(milliseconds(0)).has_value())
        << ContentsOf(log_);
  }
  std::string Path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  const TemporaryFolder folder_;
  ServiceProcess service_{REPLICANT_REPLAY, folder_.path(),
                          Settings(folder_.path())};
  std::unique_ptr<Process> actor_, learner_;
  std::unique_ptr<LoadReportFile> report_;
  std::string log_;
  int64_t store_bytes_ = 0;
  int num_learners_ = 0;
};

TEST_F(FrameStoreRecoveryTest, TheReplayIsKilled) {
  Begin();
  Disturb("replay killed", [&] {
    service_.Kill();
    service_.Start();
  });
}

// The new learner joins when the table is full.
TEST_F(FrameStoreRecoveryTest, TheLearnerIsKilled) {
  Begin();
  Disturb("learner killed", [&] {
    KillLearner();
    StartLearner();
  });
}

TEST_F(FrameStoreRecoveryTest, BothAreKilled) {
  Begin();
  Disturb("replay and learner killed", [&] {
    service_.Kill();
    KillLearner();
    service_.Start();
    StartLearner();
  });
}

// The chunks after the older checkpoint get serials that others had.
TEST_F(FrameStoreRecoveryTest, TheReplayComesBackFromAnOlderCheckpoint) {
  Begin();
  ASSERT_TRUE(service_.Stop().ok());
  const std::filesystem::path now = folder_.path() / "checkpoints";
  const std::filesystem::path older = folder_.path() / "older";
  std::filesystem::copy(now, older, std::filesystem::copy_options::recursive);
  service_.Start();
  Disturb("replay set back", [&] {
    service_.Kill();
    std::filesystem::remove_all(now);
    std::filesystem::rename(older, now);
    service_.Start();
  });
}

TEST_F(FrameStoreRecoveryTest, TheReplayStandsStill) {
  Begin();
  Disturb("replay stopped and continued", [&] {
    service_.Signal(SIGSTOP);
    std::this_thread::sleep_for(PartitionTime());
    service_.Signal(SIGCONT);
  });
}

TEST_F(FrameStoreRecoveryTest, TheLearnerStandsStill) {
  Begin();
  Disturb("learner stopped and continued", [&] {
    learner_->Signal(SIGSTOP);
    std::this_thread::sleep_for(PartitionTime());
    learner_->Signal(SIGCONT);
  });
}

// A tenth of the frames fit: the rest comes with the batches.
TEST_F(FrameStoreRecoveryTest, ASmallStoreIsFullAllTheTime) {
  constexpr int64_t kSmallStore = kTableSize / 10 * kLoadFrameBytes;
  Begin(kSmallStore);
  const auto give_up = Clock::Real().Now() + seconds(60);
  const auto is_full = [&] {
    return (*report_)->evicted_frames > 0 && (*report_)->drawn_kept_frames > 0;
  };
  while (!is_full() && Clock::Real().Now() < give_up) {
    ASSERT_GT(Rate(), 0.0) << ContentsOf(log_);
  }
  EXPECT_TRUE(is_full());
  EXPECT_LE((*report_)->kept_bytes, kSmallStore);
  EXPECT_LT((*report_)->drawn_kept_frames, (*report_)->drawn_frames / 2);
  service_.Kill();
  service_.Start();
  const int64_t evicted = (*report_)->evicted_frames;
  while ((*report_)->evicted_frames <= evicted &&
         Clock::Real().Now() < give_up) {
    Rate();
  }
  EXPECT_GT((*report_)->evicted_frames, evicted);
  EXPECT_GT(Rate(), 0.0) << ContentsOf(log_);
}

}  // namespace
}  // namespace replicant::replay::testing
