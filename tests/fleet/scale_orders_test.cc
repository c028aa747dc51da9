#include "fleet/scale_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/fleet/supervisor_fixture.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ScaleOrdersTest : public SupervisorTest {
 protected:
  ScaleOrdersTest() {
    roles_["actor"] = {
        .count = 1,
        .max_count = 10,
        .why_no_more = "a server was made for them",
        .make =
            [](uint32_t index, int64_t /*count*/) {
              RoleSpec spec = Specs()[2];
              spec.id.index = index;
              return spec;
            },
        .keep = [this](int64_t count) { kept_.push_back(count); }};
  }
  static ScaleRequest Request(const std::string& role, uint32_t count) {
    return {.who = "a test", .role = role, .count = count};
  }

  std::map<std::string, ScalableRole> roles_;
  std::vector<int64_t> kept_;
};

TEST_F(ScaleOrdersTest, TheLastRequestIsCarriedOutAndKept) {
  StartAll();
  backend_.TakeEvents();
  ScaleOrders orders(&roles_, 3);
  EXPECT_EQ(orders.Take(Request("actor", 5)), ScaleReply{.previous = 1});
  EXPECT_EQ(orders.Take(Request("actor", 2)), ScaleReply{.previous = 5});
  orders.CarryOut(&*supervisor_);
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-1"));
  orders.CarryOut(&*supervisor_);
  EXPECT_THAT(kept_, ElementsAre(2));
}

TEST_F(ScaleOrdersTest, RefusesWhatTheRunCannotHave) {
  StartAll();
  backend_.TakeEvents();
  ScaleOrders orders(&roles_, 3);
  EXPECT_EQ(orders.Take(Request("learner", 2)).refusal,
            "role 'learner' has a fixed number of processes; allowed: actor");
  EXPECT_EQ(orders.Take(Request("actor", 0)).refusal,
            "0 is outside [1, 10]: a server was made for them");
  EXPECT_EQ(orders.Take(Request("actor", 11)).refusal,
            "11 is outside [1, 10]: a server was made for them");
  roles_.clear();
  EXPECT_EQ(ScaleOrders(&roles_, 3).Take(Request("actor", 2)).refusal,
            "role 'actor' has a fixed number of processes; allowed: no role");
  orders.CarryOut(&*supervisor_);
  EXPECT_THAT(kept_, IsEmpty());
}

TEST_F(ScaleOrdersTest, TooFewFilesAreFoundAtTheRequest) {
  StartAll();
  const rlimit limit{125, 125};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ScaleOrders orders(&roles_, 3);
  EXPECT_EQ(orders.Take(Request("actor", 6)).refusal, "");
  EXPECT_EQ(orders.Take(Request("actor", 7)).refusal,
            "actor=7: about 127 open files and connections are needed, and the "
            "system allows 125; hint: ulimit -Hn 127, or LimitNOFILE of a "
            "systemd unit");
  EXPECT_EQ(MessageOf<ConfigError>([&] { ScaleOrders(&roles_, 9); }),
            "actors.count: about 127 open files and connections are needed, "
            "and the system allows 125; hint: ulimit -Hn 127, or LimitNOFILE "
            "of a systemd unit");
}

}  // namespace
}  // namespace replicant::fleet
