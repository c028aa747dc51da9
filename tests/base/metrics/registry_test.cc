#include "base/metrics/registry.h"

#include <gmock/gmock.h>
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

using ::testing::ElementsAre;
using testing::MessageOf;

// The text that Prometheus scrapes: sorted, with cumulative buckets.
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
  Histogram& seconds = registry.AddHistogram("replicant_learner_step_seconds",
                                             "Time of a step.", {0.5, 1.0});
  for (const double value : {0.25, 0.5, 0.75, 2.0}) seconds.Observe(value);

  EXPECT_EQ(registry.ToText(),
            R"(# HELP replicant_actor_env_steps_total Steps.
# TYPE replicant_actor_env_steps_total counter
replicant_actor_env_steps_total{actor="0"} 1
replicant_actor_env_steps_total{actor="1"} 3
# HELP replicant_learner_step_seconds Time of a step.
# TYPE replicant_learner_step_seconds histogram
replicant_learner_step_seconds_count 4
replicant_learner_step_seconds_sum 3.5
replicant_learner_step_seconds_bucket{le="0.5"} 2
replicant_learner_step_seconds_bucket{le="1"} 3
replicant_learner_step_seconds_bucket{le="+Inf"} 4
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
  Histogram& h = registry.AddHistogram("h", "H.", {1});
  EXPECT_EQ(&registry.AddHistogram("h", "H.", {1}), &h);
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
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { registry.AddHistogram("a", "A.", {1}); }),
            "metric 'a': exists as a gauge with the help text 'A.' "
            "and other limits");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              registry.AddHistogram("h", "H.", {2, 1});
            }),
            "Histogram: bucket limits must be finite and ascending, got 2, 1");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { registry.AddHistogram("h", "H.", {}); }),
      "Histogram: expected 1 to 100 bucket limits, got 0");
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

TEST(HistogramTest, ALimitBelongsToTheBucketBelow) {
  Histogram h({1, 2});
  for (const double value : {-1.0, 1.0, 1.5, 2.0, 2.5}) h.Observe(value);
  EXPECT_THAT(h.counts(), ElementsAre(2, 2, 1));
  EXPECT_EQ(h.sum(), 6.0);
}

// Would catch a NaN that is lost, or that spoils the sum for good.
TEST(HistogramTest, NanIsCountedAndNotSummed) {
  Histogram h({1});
  h.Observe(NAN);
  h.Observe(0.5);
  EXPECT_THAT(h.counts(), ElementsAre(1, 1));
  EXPECT_EQ(h.sum(), 0.5);
}

TEST(HistogramTest, ExponentialLimitsGrowByTheFactor) {
  EXPECT_THAT(ExponentialLimits(0.5, 2, 4), ElementsAre(0.5, 1, 2, 4));
  EXPECT_EQ(MessageOf<InvalidArgument>([] { ExponentialLimits(0, 2, 4); }),
            "ExponentialLimits: expected first > 0, factor > 1 and count in "
            "[1, 100], got 0, 2, 4");
}

// Would catch an update that is lost between threads (and, under tsan, a
// race).
TEST(RegistryTest, ThreadsLoseNoIncrement) {
  constexpr int kIncrements = 20000;
  Registry registry;
  Counter& counter = registry.AddCounter("a_total", "A.");
  Histogram& histogram = registry.AddHistogram("h", "H.", {1});
  {
    std::vector<std::unique_ptr<Thread>> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.push_back(
          std::make_unique<Thread>("adder", [&](const Thread::StopToken&) {
            for (int i = 0; i < kIncrements; ++i) {
              counter.Increment();
              histogram.Observe(1);
            }
          }));
    }
    for (const auto& thread : threads) thread->Join();
  }
  EXPECT_EQ(counter.value(), 4.0 * kIncrements);
  EXPECT_EQ(histogram.sum(), 4.0 * kIncrements);
}

TEST(CounterDeathTest, ACounterThatShrinksAborts) {
  Counter counter;
  EXPECT_DEATH(counter.Increment(-1), "a counter cannot grow by -1");
  EXPECT_DEATH(counter.Increment(NAN), "a counter cannot grow by nan");
}

}  // namespace
}  // namespace replicant::metrics
