// The number of processes of a role changes while the run goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "tests/fleet/supervisor_fixture.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const RoleId kSecond{"actor", 1};
const RoleId kThird{"actor", 2};

class ScaleTest : public SupervisorTest {
 protected:
  void SetActors(uint32_t count) {
    supervisor_->SetCount(
        "actor", count,
        [count](uint32_t index) {
          RoleSpec spec = Specs()[2];
          spec.id.index = index;
          spec.arguments = {"--of", std::to_string(count)};
          return spec;
        },
        "fewer are wanted");
    supervisor_->Step();
  }
};

TEST_F(ScaleTest, FurtherProcessesStartLikeTheFirstOnes) {
  StartAll();
  backend_.TakeEvents();
  SetActors(3);
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("start actor-1", "start actor-2"));
  EXPECT_THAT(backend_.last_options.at("actor-2").command,
              ElementsAre("actor", "--of", "3"));
  Beat(kSecond);
  Beat(kThird);
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kThird), RolePhase::kReady);
  // they are restarted, too
  Exit("actor-2", {3, 0});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kThird), RolePhase::kBackingOff);
  Pass(seconds(2));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-2"));
}

// Would catch an end that is counted as a failure and restarted.
TEST_F(ScaleTest, ProcessesThatAreNotWantedDrainAndStayAway) {
  StartAll();
  SetActors(3);
  Beat(kSecond);
  Beat(kThird);
  supervisor_->Step();
  backend_.TakeEvents();
  SetActors(1);
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("term actor-1", "term actor-2"));
  Beat(kThird, RoleState::kDraining);
  EXPECT_EQ(last_reply_.order, BeatReply::Order::kStop);
  EXPECT_EQ(last_reply_.reason, "fewer are wanted");
  Exit("actor-1", {0, 0});
  Exit("actor-2", {1, 0});
  Pass(seconds(5));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  EXPECT_EQ(PhaseOf(kThird), RolePhase::kEnded);
  EXPECT_EQ(supervisor_->Roles()[4].num_failures, 0);
  EXPECT_FALSE(supervisor_->Roles()[4].is_wanted);
  EXPECT_FALSE(supervisor_->IsStopping());
}

TEST_F(ScaleTest, AProcessThatDoesNotDrainIsKilled) {
  StartAll();
  SetActors(2);
  Beat(kSecond);
  supervisor_->Step();
  SetActors(1);
  backend_.TakeEvents();
  Pass(seconds(4));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("kill actor-1"));
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kSecond), RolePhase::kEnded);
  EXPECT_FALSE(supervisor_->IsStopping());
}

// Would catch a place that stays empty because its last process was told to
// end.
TEST_F(ScaleTest, AProcessThatIsWantedAgainWhileItDrainsComesBack) {
  StartAll();
  SetActors(2);
  Beat(kSecond);
  supervisor_->Step();
  SetActors(1);
  SetActors(4);
  backend_.TakeEvents();
  Exit("actor-1", {0, 0});
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-1"));
  EXPECT_THAT(backend_.last_options.at("actor-1").command,
              ElementsAre("actor", "--of", "4"));
  EXPECT_EQ(backend_.last_options.at("actor-1").environment.back(),
            "REPLICANT_INCARNATION=2");
  Beat(kSecond);
  EXPECT_EQ(last_reply_.order, BeatReply::Order::kGoOn);
}

TEST_F(ScaleTest, APlaceThatHadNoProcessComesAndGoes) {
  StartAll();
  Exit("actor-0", {3, 0});
  SetActors(2);
  Exit("actor-1", {3, 0});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kSecond), RolePhase::kBackingOff);
  SetActors(1);
  EXPECT_EQ(PhaseOf(kSecond), RolePhase::kEnded);
  backend_.TakeEvents();
  Pass(seconds(3));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-0"));
  SetActors(2);
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-1"));
}

// Would catch a machine without room for another process that ends the run.
TEST_F(ScaleTest, AFurtherProcessThatCannotBeStartedIsAFailureOfItAlone) {
  StartAll();
  backend_.start_error = "fork: Resource temporarily unavailable";
  SetActors(2);
  EXPECT_EQ(PhaseOf(kSecond), RolePhase::kBackingOff);
  EXPECT_FALSE(supervisor_->IsStopping());
}

TEST_F(ScaleTest, AllDrainAtTheEnd) {
  StartAll();
  SetActors(3);
  Beat(kSecond);
  Beat(kThird);
  supervisor_->Step();
  SetActors(2);
  backend_.TakeEvents();
  supervisor_->RequestStop("stopped");
  SetActors(5);
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("term actor-0", "term actor-1"));
  for (const char* const actor : {"actor-0", "actor-1", "actor-2"}) {
    Exit(actor, {0, 0});
  }
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term learner-0"));
}

TEST_F(ScaleTest, BadDescriptionsChangeNothing) {
  StartAll();
  backend_.TakeEvents();
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              supervisor_->SetCount(
                  "actor", 2,
                  [](uint32_t index) {
                    return RoleSpec{.id = {"actor", index}, .command = {}};
                  },
                  "");
            }),
            "fleet: actor-0 has no command");
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  EXPECT_EQ(supervisor_->Roles().size(), 3u);
}

}  // namespace
}  // namespace replicant::fleet
