#include "base/metrics/registry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "tests/support/message_of.h"

namespace replicant::metrics {
namespace {

using testing::MessageOf;

// The text that Prometheus scrapes: sorted.
TEST(RegistryTest, TextHoldsEveryMetricInOrder) {
  Registry registry;
  registry
      .AddGauge("replicant_replay_items", "Items in the table.",
                {{"table", "main"}})
      .Set(42);
  registry
      .AddCounter("replicant_actor_env_steps_total", "Steps.", {{"actor", "1"}})
      .Increment(3);
  registry
      .AddCounter("replicant_actor_env_steps_total", "Steps.", {{"actor", "0"}})
      .Increment();

  EXPECT_EQ(registry.ToText(),
            R"(# HELP replicant_actor_env_steps_total Steps.
# TYPE replicant_actor_env_steps_total counter
replicant_actor_env_steps_total{actor="0"} 1
replicant_actor_env_steps_total{actor="1"} 3
# HELP replicant_replay_items Items in the table.
# TYPE replicant_replay_items gauge
replicant_replay_items{table="main"} 42
)");
}

// Would catch label values that break the lines of the text.
TEST(RegistryTest, LabelValuesAreEscapedAndValid) {
  Registry registry;
  registry.AddGauge("a", "A.", {{"task", "x\"\\\n\xFF"}}).Set(NAN);
  EXPECT_EQ(registry.ToText(),
            "# HELP a A.\n# TYPE a gauge\n"
            "a{task=\"x\\\"\\\\\\n\xEF\xBF\xBD\"} Nan\n");
}

TEST(RegistryTest, TheSameMetricIsTheSameObject) {
  Registry registry;
  Counter& a = registry.AddCounter("a_total", "A.", {{"x", "1"}});
  EXPECT_EQ(&registry.AddCounter("a_total", "A.", {{"x", "1"}}), &a);
  EXPECT_NE(&registry.AddCounter("a_total", "A.", {{"x", "2"}}), &a);
}

TEST(RegistryTest, BadMetricsAreNamedAndNotAdded) {
  Registry registry;
  registry.AddGauge("a", "A.");
  const std::string before = registry.ToText();

  EXPECT_EQ(MessageOf<InvalidArgument>([&] { registry.AddGauge("a b", "A."); }),
            "metric 'a b': a name may have letters, digits and '_', such as "
            "replicant_replay_items");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { registry.AddCounter("steps", "A."); }),
      "metric 'steps': the name of a counter must end in _total");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { registry.AddGauge("b_total", "A."); }),
      "metric 'b_total': the name of a gauge must not end in _total");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { registry.AddGauge("b", "A\nB"); }),
            "metric 'b': the help text must be one line");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              registry.AddGauge("b", "B.", {{"le", "1"}});
            }),
            "metric 'b': label 'le': a name may have letters, digits and '_', "
            "but must not begin with '__' or be 'le'");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { registry.AddGauge("a", "Other."); }),
      "metric 'a': exists as a gauge with the help text 'A.'");
  EXPECT_EQ(registry.ToText(), before);
}

// Would catch a label such as a sequence number that fills the memory.
TEST(RegistryTest, SeriesWithoutEndAreRefused) {
  Registry registry;
  const auto add = [&](int i) {
    registry.AddGauge("a", "A.", {{"i", std::to_string(i)}});
  };
  for (int i = 0; i < 10000; ++i) add(i);
  add(0);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { add(10000); }),
            "metric 'a': more than 10000 series; hint: a label must not be "
            "a value that never repeats");
}

// Would catch an update that is lost between threads (and, under tsan, a
// race).
TEST(RegistryTest, ThreadsLoseNoIncrement) {
  constexpr int kIncrements = 20000;
  Registry registry;
  Counter& counter = registry.AddCounter("a_total", "A.");
  {
    std::vector<std::unique_ptr<Thread>> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.push_back(
          std::make_unique<Thread>("adder", [&](const Thread::StopToken&) {
            for (int i = 0; i < kIncrements; ++i) {
              counter.Increment();
            }
          }));
    }
    for (const auto& thread : threads) thread->Join();
  }
  EXPECT_EQ(counter.value(), 4.0 * kIncrements);
}

TEST(CounterDeathTest, ACounterThatShrinksAborts) {
  Counter counter;
  EXPECT_DEATH(counter.Increment(-1), "a counter cannot grow by -1");
  EXPECT_DEATH(counter.Increment(NAN), "a counter cannot grow by nan");
}

}  // namespace
}  // namespace replicant::metrics
