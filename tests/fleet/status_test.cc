#include "fleet/status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/fs.h"

namespace replicant::fleet {
namespace {

using std::chrono::seconds;

class FleetStatusTest : public ::testing::Test {
 protected:
  // The messages of a role from now on.
  Heartbeat& Beat(const std::string& role, uint32_t index) {
    Heartbeat& beat = beats_[{role, index}];
    beat.id = {role, index};
    return beat;
  }
  void Update(bool is_stopping = false) {
    clock_.Advance(seconds(1));
    std::vector<HeartbeatMonitor::Entry> entries;
    for (const auto& [id, beat] : beats_) {
      entries.push_back({beat, clock_.Now()});
    }
    status_.Update(roles_, entries, is_stopping, clock_.Now());
  }

  FakeClock clock_;
  FleetStatus status_;
  std::map<RoleId, Heartbeat> beats_;
  std::vector<Supervisor::RoleView> roles_;
};

TEST_F(FleetStatusTest, AddsAveragesAndKeepsTheLast) {
  EXPECT_TRUE(std::isnan(status_.Sum("actor", "return")));
  EXPECT_TRUE(std::isnan(status_.Mean("actor", "return")));
  EXPECT_TRUE(std::isnan(status_.Last("actor", "return")));
  Beat("actor", 0).numbers["return"] = {BeatNumber::Kind::kGauge, 1.0};
  Beat("actor", 1).numbers["return"] = {BeatNumber::Kind::kGauge, 4.0};
  Beat("evaluator", 0).numbers["return"] = {BeatNumber::Kind::kGauge, 100.0};
  Update();
  EXPECT_EQ(status_.Sum("actor", "return"), 5.0);
  EXPECT_EQ(status_.Mean("actor", "return"), 2.5);
  EXPECT_EQ(status_.Last("evaluator", "return"), 100.0);
  EXPECT_TRUE(std::isnan(status_.Sum("actor", "steps")));
}

// A total must not fall when an actor is started again: rates and the count
// of frames would be wrong.
TEST_F(FleetStatusTest, CountersOfEarlierIncarnationsStay) {
  Heartbeat& beat = Beat("actor", 0);
  beat.numbers["env_steps"] = {BeatNumber::Kind::kCounter, 100.0};
  beat.numbers["return"] = {BeatNumber::Kind::kGauge, 1.0};
  Update();
  beat.numbers["env_steps"].value = 150.0;
  Update();
  EXPECT_EQ(status_.Sum("actor", "env_steps"), 150.0);
  beat.incarnation = 2;
  beat.numbers.clear();
  Update();
  EXPECT_EQ(status_.Sum("actor", "env_steps"), 150.0);
  beat.numbers["env_steps"] = {BeatNumber::Kind::kCounter, 7.0};
  beat.numbers["return"] = {BeatNumber::Kind::kGauge, 2.0};
  Update();
  EXPECT_EQ(status_.Sum("actor", "env_steps"), 157.0);
  EXPECT_EQ(status_.Sum("actor", "return"), 2.0);
}

// The last report of an actor on a lost host says nothing about the others.
TEST_F(FleetStatusTest, GaugesAreOfThoseThatRun) {
  roles_ = {{.id = {"actor", 0}, .phase = RolePhase::kReady},
            {.id = {"actor", 1}, .phase = RolePhase::kBackingOff}};
  for (uint32_t i = 0; i < 2; ++i) {
    Heartbeat& beat = Beat("actor", i);
    beat.numbers["policy_step"] = {BeatNumber::Kind::kGauge, 100.0 - 90.0 * i};
    beat.numbers["frames"] = {BeatNumber::Kind::kCounter, 50.0};
  }
  Update();
  EXPECT_EQ(status_.Mean("actor", "policy_step"), 100.0);
  EXPECT_EQ(status_.Sum("actor", "policy_step"), 100.0);
  EXPECT_EQ(status_.Max("actor", "policy_step"), 100.0);
  EXPECT_TRUE(std::isnan(status_.Max("learner", "policy_step")));
  EXPECT_EQ(status_.Sum("actor", "frames"), 100.0);
  // at the end of a run none runs
  for (auto& role : roles_) role.phase = RolePhase::kEnded;
  Update();
  EXPECT_EQ(status_.Mean("actor", "policy_step"), 55.0);
}

TEST_F(FleetStatusTest, TheSideThatDoesNotWaitIsTheLimit) {
  roles_ = {{.id = {"actor", 0}, .data_flow = DataFlow::kProduces},
            {.id = {"actor", 1}, .data_flow = DataFlow::kProduces},
            {.id = {"replay", 0}, .data_flow = DataFlow::kBuffers},
            {.id = {"learner", 0}, .data_flow = DataFlow::kConsumes}};
  Heartbeat& learner = Beat("learner", 0);
  Heartbeat& actor0 = Beat("actor", 0);
  Heartbeat& actor1 = Beat("actor", 1);
  Update();
  EXPECT_EQ(status_.Limit(), "none");
  // the learner waits 60 % of the time
  learner.reason = "no batch";
  for (int i = 0; i < 5; ++i) {
    learner.waiting_s += 0.6;
    Update();
  }
  EXPECT_EQ(status_.Limit(), "actors: learner waits 60% (no batch)");
  // then the actors: one always, the other never
  learner.reason.clear();
  for (int i = 0; i < 12; ++i) {
    actor0.waiting_s += 1.0;
    actor1.reason = "";
    Update();
  }
  EXPECT_EQ(status_.Limit(), "learner: actors wait 50%");
  Beat("replay", 0).reason = "samples per insert 32 reached";
  Update();
  EXPECT_EQ(status_.Limit(),
            "learner: actors wait 45% (samples per insert 32 reached)");
}

TEST_F(FleetStatusTest, WhereBothSidesWaitTheBufferIsTheLimit) {
  roles_ = {{.id = {"actor", 0}, .data_flow = DataFlow::kProduces},
            {.id = {"replay", 0}, .data_flow = DataFlow::kBuffers},
            {.id = {"learner", 0}, .data_flow = DataFlow::kConsumes}};
  Heartbeat& learner = Beat("learner", 0);
  Heartbeat& actor = Beat("actor", 0);
  Beat("replay", 0).reason = "no room";
  actor.reason = "replay: waits";
  for (int i = 0; i < 12; ++i) {
    learner.waiting_s += 1.0;
    actor.waiting_s += 0.8;
    Update();
  }
  EXPECT_EQ(status_.Limit(), "replay: learner and actors wait 80% (no room)");
}

TEST_F(FleetStatusTest, ASideThatHardlyWaitsIsTheLimitOfOneThatAlwaysDoes) {
  roles_ = {{.id = {"actor", 0}, .data_flow = DataFlow::kProduces},
            {.id = {"replay", 0}, .data_flow = DataFlow::kBuffers},
            {.id = {"learner", 0}, .data_flow = DataFlow::kConsumes}};
  Heartbeat& learner = Beat("learner", 0);
  Heartbeat& actor = Beat("actor", 0);
  for (int i = 0; i < 12; ++i) {
    learner.waiting_s += 0.02;
    actor.waiting_s += 1.0;
    Update();
  }
  EXPECT_EQ(status_.Limit(), "learner: actors wait 100%");
}

TEST_F(FleetStatusTest, ARoleThatIsNotThereIsTheLimit) {
  roles_ = {{.id = {"actor", 1},
             .phase = RolePhase::kBackingOff,
             .backoff_s = 3.2,
             .last_failure = "exit code 3"}};
  Update();
  EXPECT_EQ(status_.Limit(), "actor-1 restarts in 4 s (exit code 3)");
  roles_[0].phase = RolePhase::kStarting;
  Update();
  EXPECT_EQ(status_.Limit(), "actor-1 starts");
  roles_[0].phase = RolePhase::kReady;
  Update();
  EXPECT_EQ(status_.Limit(), "none");
  Update(/*is_stopping=*/true);
  EXPECT_EQ(status_.Limit(), "stopping");
}

// A disk that is full or stands still ends nothing, so it must be said.
TEST_F(FleetStatusTest, NamesWhatTheDiskDoes) {
  roles_ = {{.id = {"learner", 0}, .phase = RolePhase::kReady}};
  auto& numbers = Beat("learner", 0).numbers;
  numbers["disk_wait_s"] = {BeatNumber::Kind::kGauge, 9.0};
  numbers["dropped_records"] = {BeatNumber::Kind::kCounter, 0.0};
  Update();
  EXPECT_EQ(status_.Problem(), "");
  numbers["disk_wait_s"].value = 35.0;
  Update();
  EXPECT_EQ(status_.Problem(), "learner-0 waits 35 s for the disk");
  status_.Update(roles_, {}, false, clock_.Now(), /*disk_wait_s=*/12.0);
  EXPECT_EQ(status_.Problem(),
            "the fleet waits 12 s for the disk; learner-0 waits 35 s for the "
            "disk");
  // of a process that has ended, the last heartbeat says nothing
  roles_[0].phase = RolePhase::kBackingOff;
  Update();
  EXPECT_EQ(status_.Problem(), "");

  roles_[0].phase = RolePhase::kReady;
  numbers["disk_wait_s"].value = 0.0;
  numbers["dropped_records"].value = 120.0;
  Update();
  EXPECT_EQ(status_.Problem(), "learner-0 has lost 120 records of its curves");
  // a new process counts from 0
  Beat("learner", 0).incarnation = 2;
  numbers["dropped_records"].value = 0.0;
  Update();
  numbers["dropped_records"].value = 5.0;
  for (int i = 0; i < 60; ++i) Update();
  EXPECT_EQ(status_.Problem(), "learner-0 has lost 125 records of its curves");
  Update();
  EXPECT_EQ(status_.Problem(), "");

  numbers["checkpoint_age_s"] = {BeatNumber::Kind::kGauge, 730.0};
  numbers["failed_checkpoints"] = {BeatNumber::Kind::kGauge, 5.0};
  Update();
  EXPECT_EQ(status_.Problem(),
            "5 checkpoints failed, the last good one 12m10s ago");
  numbers.clear();
  numbers["cut_evaluations"] = {BeatNumber::Kind::kCounter, 2.0};
  numbers["failed_evaluations"] = {BeatNumber::Kind::kCounter, 1.0};
  numbers["endless_environments"] = {BeatNumber::Kind::kGauge, 3.0};
  Update();
  EXPECT_EQ(status_.Problem(),
            "2 evaluations had an episode without end: the environment needs a "
            "time limit; 1 evaluation failed, see the log; 3 environments of "
            "learner-0 without an end of an episode");
}

TEST_F(FleetStatusTest, FillsTheProgressLine) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "line";
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT, 0666);
  {
    ProgressLine line({.fd = fd}, clock_);
    status_.AddTo(
        line, {{.kind = ProgressField::Kind::kCount,
                .label = "step",
                .role = "learner",
                .number = "step",
                .goal = 1000},
               {.kind = ProgressField::Kind::kRate,
                .label = "frames/s",
                .role = "actor",
                .number = "frames"},
               {.label = "return", .role = "evaluator", .number = "return"},
               {.kind = ProgressField::Kind::kTime,
                .goals = {{.role = "learner", .number = "step", .goal = 1000}}},
               {.kind = ProgressField::Kind::kLimit}});
    line.Update();
    Beat("learner", 0).numbers["step"] = {BeatNumber::Kind::kGauge, 500.0};
    Beat("actor", 0).numbers["frames"] = {BeatNumber::Kind::kCounter, 3000.0};
    Beat("evaluator", 0).numbers["return"] = {BeatNumber::Kind::kGauge, 12.5};
    clock_.Advance(seconds(29));
    Update();
    line.Update();
  }
  ::close(fd);
  const std::string last =
      "step 500/1000  frames/s 100  return 12.5  30s, 30s left  limit none\n";
  EXPECT_EQ(ReadFile(file),
            "step 0/1000  frames/s -  return -  0s, ? left  limit none\n" +
                last + last);
}

}  // namespace
}  // namespace replicant::fleet
