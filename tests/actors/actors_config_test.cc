#include "actors/actors_config.h"

#include <gtest/gtest.h>

#include "base/config/load.h"
#include "tests/support/message_of.h"

namespace replicant::actors {
namespace {

using replicant::testing::MessageOf;

void Load(const std::string& yaml) {
  config::Load<ActorsConfig>(config::Document::FromText("actors.yaml", yaml));
}

// A server would not hold the noise, and nobody would see it.
TEST(ActorsConfigTest, AServerOfTheHostCannotHoldNoise) {
  EXPECT_EQ(MessageOf([] {
              Load("{inference: host, exploration: {initial_hold_steps: 6}}");
            }),
            "actors.yaml:1:13: inference: host draws new noise for each batch, "
            "but exploration holds a draw for 6 steps; allowed: actor, or "
            "exploration.initial_hold_steps and final_hold_steps: 1");
  EXPECT_NO_THROW(Load("{inference: host}"));
  EXPECT_NO_THROW(
      Load("{inference: actor, exploration: {final_hold_steps: 6}}"));
}

}  // namespace
}  // namespace replicant::actors
