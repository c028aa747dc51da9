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

// Whether `is_reached` comes to return true within a minute.
bool Await(const std::function<bool()>& is_reached) {
  const auto give_up = Clock::Real().Now() + seconds(60);
  while (!is_reached()) {
    if (Clock::Real().Now() >= give_up) return false;
  }
  return true;
}

// A service, an actor and a learner.
class Training {
 public:
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

  int64_t NumBatches() const { return (*report_)->rounds; }
  // Whether the learner has ended, as it does at a wrong frame.
  bool HasEnded() { return learner_->Wait(milliseconds(0)).has_value(); }
  // Batches per second over a window.
  double Rate() const {
    const int64_t before = NumBatches();
    const auto begin = Clock::Real().Now();
    std::this_thread::sleep_for(kWindow);
    return static_cast<double>(NumBatches() - before) /
           ToSeconds(Clock::Real().Now() - begin);
  }
  // Waits for the learner's next batch; whether it comes.
  bool AwaitBatch() {
    const int64_t before = NumBatches();
    return Await([&] {
             std::this_thread::sleep_for(milliseconds(5));
             return NumBatches() > before || HasEnded();
           }) &&
           NumBatches() > before;
  }
  // Returns once nine tenths of the drawn frames are kept: the newest ones may
  // be drawn before they come.
  void AwaitHits() {
    LoadReport& now = **report_;
    EXPECT_TRUE(Await([&now] {
      const int64_t drawn = now.drawn_frames;
      const int64_t kept = now.drawn_kept_frames;
      std::this_thread::sleep_for(milliseconds(200));
      return static_cast<double>(now.drawn_kept_frames - kept) >=
             0.9 * static_cast<double>(
                       std::max<int64_t>(1, now.drawn_frames - drawn));
    })) << ContentsOf(log_);
  }

 protected:
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

class FrameStoreRecoveryTest : public ::testing::Test, protected Training {
 protected:
  // Does `what` to a learner at its rate, and waits until it is there again.
  void Disturb(const std::string& name, const std::function<void()>& what) {
    AwaitHits();
    double before = 0.0;
    ASSERT_TRUE(Await([&] { return (before = Rate()) > 0.0; }));
    what();
    const auto begin = Clock::Real().Now();
    bool is_back =
        Await([&] { return HasEnded() || Rate() >= kShareOfRate * before; });
    if (!is_back) is_back = IsAsFastAsAnother();
    const double back_s = ToSeconds(Clock::Real().Now() - begin);
    AwaitHits();
    std::printf(
        "%s: %.0f batches/s before, back within %.1f s, all frames kept within "
        "%.1f s\n",
        name.c_str(), before, back_s, ToSeconds(Clock::Real().Now() - begin));
    EXPECT_TRUE(is_back) << ContentsOf(log_);
    EXPECT_FALSE(HasEnded()) << ContentsOf(log_);
  }

 private:
  // Whether the learner comes to have the rate of another one, which nothing
  // has disturbed. For a machine that has more to do than when the rate before
  // was measured.
  bool IsAsFastAsAnother() {
    Training another;
    another.Begin();
    if (HasFatalFailure()) return false;
    another.AwaitHits();
    return Await([&] {
      const int64_t own = NumBatches();
      const int64_t others = another.NumBatches();
      std::this_thread::sleep_for(kWindow);
      const auto rate = static_cast<double>(another.NumBatches() - others);
      return rate > 0.0 &&
             static_cast<double>(NumBatches() - own) >= kShareOfRate * rate;
    });
  }
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
  EXPECT_TRUE(Await([&] {
    return !AwaitBatch() || ((*report_)->evicted_frames > 0 &&
                             (*report_)->drawn_kept_frames > 0);
  }));
  EXPECT_GT((*report_)->evicted_frames, 0) << ContentsOf(log_);
  EXPECT_GT((*report_)->drawn_kept_frames, 0) << ContentsOf(log_);
  EXPECT_LE((*report_)->kept_bytes, kSmallStore);
  EXPECT_LT((*report_)->drawn_kept_frames, (*report_)->drawn_frames / 2);
  service_.Kill();
  service_.Start();
  const int64_t evicted = (*report_)->evicted_frames;
  EXPECT_TRUE(Await(
      [&] { return !AwaitBatch() || (*report_)->evicted_frames > evicted; }));
  EXPECT_GT((*report_)->evicted_frames, evicted);
  EXPECT_TRUE(AwaitBatch()) << ContentsOf(log_);
}

}  // namespace
}  // namespace replicant::replay::testing
