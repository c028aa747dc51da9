#include "fleet/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/process.h"
#include "tests/support/http_get.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::HttpGet;
using replicant::testing::MessageOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAnyPort = "127.0.0.1:0";

class MetricsPageTest : public ::testing::Test {
 protected:
  std::string Update() {
    page_.Update({role_}, {{beat_, Clock::TimePoint()}});
    return HttpGet(page_.port(), "/metrics");
  }

  MetricsPage page_{kAnyPort, "walk"};
  Supervisor::RoleView role_ = {
      .id = {"actor", 3}, .phase = RolePhase::kReady, .incarnation = 7};
  Heartbeat beat_ = {.id = {"actor", 3}, .incarnation = 7};
};

TEST_F(MetricsPageTest, ServesEveryRoleWithItsNumbers) {
  role_.phase = RolePhase::kPending;
  role_.incarnation = 0;
  page_.Update({role_, {.id = {"learner", 0}, .phase = RolePhase::kReady}}, {});
  const std::string before = HttpGet(page_.port(), "/metrics");
  EXPECT_THAT(before, HasSubstr("\nreplicant_fleet_role_up{index=\"3\",role="
                                "\"actor\",run=\"walk\"} 0\n"));
  EXPECT_THAT(before, HasSubstr("\nreplicant_fleet_role_up{index=\"0\",role="
                                "\"learner\",run=\"walk\"} 1\n"));

  role_.phase = RolePhase::kReady;
  role_.incarnation = 7;
  beat_.waiting_s = 1.5;
  beat_.numbers = {{"return", {BeatNumber::Kind::kGauge, 12.5}},
                   {"frames", {BeatNumber::Kind::kCounter, 100.0}},
                   {"actor/value", {BeatNumber::Kind::kGauge, 3.0}},
                   {"step.ms/mean", {BeatNumber::Kind::kGauge, 4.0}}};
  const std::string page = Update();
  for (const char* line :
       {"replicant_fleet_role_up{index=\"3\",role=\"actor\",run=\"walk\"} 1",
        "replicant_fleet_role_restarts_total{index=\"3\",role=\"actor\",run="
        "\"walk\"} 0",
        "replicant_fleet_role_waiting_seconds_total{index=\"3\",role="
        "\"actor\",run=\"walk\"} 1.5",
        "replicant_role_return{index=\"3\",role=\"actor\",run=\"walk\"} 12.5",
        "replicant_role_frames_total{index=\"3\",role=\"actor\",run=\"walk\"} "
        "100",
        "replicant_actor_value{index=\"3\",role=\"actor\",run=\"walk\"} 3",
        "replicant_role_step_ms_mean{index=\"3\",role=\"actor\",run=\"walk\"} "
        "4"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n") + line + "\n"));
  }
}

// Would catch a total that falls, or counts one process twice, when a role is
// restarted.
TEST_F(MetricsPageTest, CountersContinueOverARestart) {
  beat_.waiting_s = 2.0;
  beat_.numbers = {{"frames", {BeatNumber::Kind::kCounter, 100.0}}};
  Update();
  beat_.numbers["frames"].value = 150.0;
  Update();
  // the new process runs before its first heartbeat replaces the old one
  role_.incarnation = 8;
  Update();
  beat_.incarnation = 8;
  beat_.waiting_s = 0.5;
  beat_.numbers["frames"].value = 7.0;
  const std::string page = Update();
  EXPECT_THAT(
      page,
      HasSubstr("role_frames_total{index=\"3\",role=\"actor\",run=\"walk\"} "
                "157\n"));
  EXPECT_THAT(page, HasSubstr("role_waiting_seconds_total{index=\"3\",role="
                              "\"actor\",run=\"walk\"} 2.5\n"));
  EXPECT_THAT(
      page,
      HasSubstr("role_restarts_total{index=\"3\",role=\"actor\",run=\"walk\"} "
                "1\n"));
}

// A heartbeat allows more names than the registry.
TEST_F(MetricsPageTest, ANumberThatCannotBeShownIsLeftOut) {
  beat_.numbers = {{"frames_total", {BeatNumber::Kind::kGauge, 1.0}}};
  EXPECT_THAT(Update(), Not(HasSubstr("frames_total")));
}

TEST(MetricsPageAddressTest, AnAddressThatCannotBeUsedNamesItsKey) {
  const MetricsPage first(kAnyPort, "walk");
  CheckMetricsAddress(kMetricsKey, "");
  std::string address = "127.0.0.1:" + std::to_string(first.port());
  const auto refusal = [&address] {
    return MessageOf<ConfigError>(
        [&address] { CheckMetricsAddress(kMetricsKey, address); });
  };
  EXPECT_THAT(refusal(),
              HasSubstr("fleet.metrics_address: " + HostAndPid() +
                        ": metrics address '" + address + "': cannot listen"));
  address = "localhost:9464";
  EXPECT_EQ(refusal(),
            "fleet.metrics_address: metrics address 'localhost:9464': expected "
            "an IPv4 address and a port, such as 127.0.0.1:9464 (port 0: any)");
}

}  // namespace
}  // namespace replicant::fleet
