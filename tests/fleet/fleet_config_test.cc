#include "fleet/fleet_config.h"

#include <gtest/gtest.h>

#include "base/config/load.h"
#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;

struct Sections {
  RunSection run;
  FleetConfig fleet;

  static Sections Read(config::Reader& reader) {
    Sections c;
    reader.Section("run", &c.run, "name, folder and seed of the run");
    reader.Section("fleet", &c.fleet,
                   "how the launcher watches the processes of a run");
    return c;
  }
};

Sections Read(const std::string& text) {
  return config::Load<Sections>(config::Document::FromText("run.yaml", text))
      .config;
}

TEST(FleetConfigTest, ReadsEveryKey) {
  const Sections c = Read(
      "run: {name: walker, dir: /tmp/x, seed: 7}\n"
      "fleet:\n"
      "  start_timeout_s: 5\n"
      "  heartbeat_timeout_s: 2\n"
      "  stop_timeout_s: 3\n"
      "  progress_interval_s: 4\n"
      "  metrics_address: 127.0.0.1:9464\n"
      "  restart:\n"
      "    actor: {initial_backoff_s: 0.25, max_backoff_s: 9, jitter: 0,\n"
      "            budget: 3, window_s: 60}\n");
  EXPECT_EQ(c.run.name, "walker");
  EXPECT_EQ(c.run.dir, "/tmp/x");
  EXPECT_EQ(c.run.seed, 7);
  EXPECT_EQ(c.fleet.start_timeout_s, 5.0);
  EXPECT_EQ(c.fleet.heartbeat_timeout_s, 2.0);
  EXPECT_EQ(c.fleet.stop_timeout_s, 3.0);
  EXPECT_EQ(c.fleet.progress_interval_s, 4.0);
  EXPECT_EQ(c.fleet.metrics_address, "127.0.0.1:9464");
  const RestartPolicy& actor = c.fleet.restart.at("actor");
  EXPECT_EQ(actor.initial_backoff_s, 0.25);
  EXPECT_EQ(actor.max_backoff_s, 9.0);
  EXPECT_EQ(actor.jitter, 0.0);
  EXPECT_EQ(actor.budget, 3);
  EXPECT_EQ(actor.window_s, 60.0);
}

TEST(FleetConfigTest, EachRoleHasItsDefaults) {
  const FleetConfig c = Read("").fleet;
  EXPECT_EQ(c.restart.size(), 7u);
  EXPECT_EQ(c.restart.at("actor").budget, 20);
  EXPECT_EQ(c.restart.at("replay").budget, 5);
  EXPECT_EQ(c.restart.at("learner").budget, 5);
  EXPECT_EQ(c.restart.at("server").budget, 5);
  EXPECT_EQ(c.restart.at("worker").budget, 20);
  EXPECT_EQ(c.restart.at("inference").budget, 20);
  EXPECT_EQ(c.restart.at("evaluator").initial_backoff_s, 2.0);
}

TEST(FleetConfigTest, SaysWhatIsWrong) {
  EXPECT_EQ(
      MessageOf<ConfigError>([] {
        Read(
            "run: {name: a/b, seed: -1}\n"
            "fleet:\n"
            "  heartbeat_timeout_s: 0.5\n"
            "  restart:\n"
            "    actors: {}\n"
            "    learner: {initial_backoff_s: 40}\n");
      }),
      "run.yaml:1:13: run.name: must be 1 to 100 letters, digits, '_', '-' and "
      "'.', not starting with '.', since it names a folder\n"
      "run.yaml:1:24: run.seed: -1 is outside >= 0 (seed of all random numbers "
      "of the run)\n"
      "run.yaml:3:24: fleet.heartbeat_timeout_s: 0.5 is outside [1, 3600] "
      "(seconds without a heartbeat after which a process is killed and counts "
      "as failed; processes send one a second)\n"
      "run.yaml:5:5: fleet.restart.actors: unknown key; did you mean 'actor'?\n"
      "run.yaml:6:5: fleet.restart.learner.max_backoff_s: must be >= "
      "initial_backoff_s");
}

}  // namespace
}  // namespace replicant::fleet
