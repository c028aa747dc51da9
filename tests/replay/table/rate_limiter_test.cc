#include "replay/table/rate_limiter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;

RateLimiterConfig Ratio(double samples_per_insert, int64_t min_size,
                        double error_buffer) {
  return {.mode = RateLimiterMode::kRatio,
          .samples_per_insert = samples_per_insert,
          .min_size_to_sample = min_size,
          .error_buffer = error_buffer};
}

constexpr RateLimiterLimits kLimits = {.max_size = 1000};

TEST(RateLimiterTest, SamplesWaitForTheMinimumSizeAndInsertsDoNot) {
  RateLimiter limiter(Ratio(4.0, 10, 8.0), kLimits);
  EXPECT_EQ(limiter.AdmitSamples(5, /*size=*/9), 0);
  EXPECT_EQ(limiter.AdmitInserts(5, /*size=*/0), 5);
  EXPECT_EQ(limiter.WhySamplesWait(9),
            "the table holds 9 items; min_size_to_sample is 10");
  EXPECT_EQ(limiter.WhyInsertsWait(9), "");
}

// 10 inserts reach the minimum at error 0; the buffer of 8 takes 2 inserts of 4
// samples each, or 8 samples.
TEST(RateLimiterTest, AdmitsWhatTheBufferTakesOneByOne) {
  RateLimiter limiter(Ratio(4.0, 10, 8.0), kLimits);
  limiter.CountInserts(10);
  EXPECT_EQ(limiter.error(), 0.0);
  EXPECT_EQ(limiter.AdmitInserts(100, 10), 2);
  EXPECT_EQ(limiter.AdmitSamples(100, 10), 8);

  limiter.CountInserts(2);
  EXPECT_EQ(limiter.AdmitInserts(100, 12), 0);
  EXPECT_EQ(limiter.WhyInsertsWait(12),
            "samples lag: 12 inserts and 0 samples, 8.0 samples behind 4 per "
            "insert; at most 8.0 are allowed");
  limiter.CountSamples(16);
  EXPECT_EQ(limiter.AdmitSamples(100, 12), 0);
  EXPECT_EQ(limiter.WhySamplesWait(12),
            "inserts lag: 12 inserts and 16 samples, 8.0 samples ahead of 4 "
            "per insert; at most 8.0 are allowed");
  EXPECT_EQ(limiter.AdmitInserts(1, 12), 1);
}

// Whatever the order of calls, one side can go on, and the ratio holds.
TEST(RateLimiterTest, NeverBlocksBothSidesAndKeepsTheRatio) {
  for (const double ratio : {0.1, 0.5, 1.0, 3.7, 32.0}) {
    const double buffer = std::max(1.0, ratio);
    SCOPED_TRACE(ratio);
    RateLimiter limiter(Ratio(ratio, 20, buffer), kLimits);
    RandomStream random(static_cast<uint64_t>(ratio * 10), "calls");
    int64_t size = 0;
    for (int i = 0; i < 20'000; ++i) {
      const int64_t inserts = limiter.AdmitInserts(3, size);
      const int64_t samples = limiter.AdmitSamples(7, size);
      ASSERT_GT(inserts + samples, 0);
      if (random.UniformInt(2) == 0) {
        limiter.CountInserts(inserts);
        size = std::min(size + inserts, kLimits.max_size);
      } else {
        limiter.CountSamples(samples);
        // items may also go, as with max_times_sampled
        if (random.UniformInt(50) == 0) size -= std::min<int64_t>(size, 5);
      }
      // below the minimum size inserts are free to raise it
      if (limiter.inserts() > 20) {
        ASSERT_GE(limiter.error(), -buffer - 1e-3);
      }
    }
    EXPECT_NEAR(static_cast<double>(limiter.samples()),
                ratio * static_cast<double>(limiter.inserts()),
                0.2 * ratio * static_cast<double>(limiter.inserts()));
  }
}

TEST(RateLimiterTest, MinSizeModeNeverStopsInserts) {
  RateLimiter limiter(
      {.mode = RateLimiterMode::kMinSize, .min_size_to_sample = 3}, kLimits);
  limiter.CountInserts(1'000'000);
  EXPECT_EQ(limiter.AdmitInserts(7, 2), 7);
  EXPECT_EQ(limiter.AdmitSamples(7, 2), 0);
  EXPECT_EQ(limiter.AdmitSamples(7, 3), 7);
  EXPECT_EQ(limiter.error(), 0.0);
}

TEST(RateLimiterTest, QueueModeHoldsEachSideAtItsEnd) {
  RateLimiter limiter({.mode = RateLimiterMode::kQueue},
                      {.max_size = 5, .max_times_sampled = 1});
  EXPECT_EQ(limiter.AdmitInserts(7, 2), 3);
  EXPECT_EQ(limiter.AdmitSamples(7, 2), 2);
  EXPECT_EQ(limiter.WhyInsertsWait(5), "the queue is full with 5 items");
  EXPECT_EQ(limiter.WhySamplesWait(0), "the queue is empty");
}

TEST(RateLimiterTest, RefusesWhatCouldBlockWithTheReason) {
  const auto reason = [](const RateLimiterConfig& config,
                         const RateLimiterLimits& limits) {
    try {
      const RateLimiter limiter(config, limits);
    } catch (const InvalidArgument& e) {
      EXPECT_EQ(e.what(), "rate_limiter: " + WhyRefused(config, limits));
    }
    return WhyRefused(config, limits);
  };
  EXPECT_EQ(reason(Ratio(4, 10, 8), kLimits), "");
  EXPECT_EQ(reason(Ratio(4, 1001, 8), kLimits),
            "min_size_to_sample 1001 is above max_size 1000: the table could "
            "never be sampled");
  EXPECT_EQ(reason(Ratio(4, 0, 8), kLimits),
            "min_size_to_sample 0 must be >= 1");
  EXPECT_EQ(reason(Ratio(0, 10, 8), kLimits),
            "samples_per_insert 0 must be > 0 and finite");
  EXPECT_EQ(reason(Ratio(4, 10, NAN), kLimits),
            "error_buffer nan must be >= 0");
  EXPECT_EQ(reason(Ratio(4, 10, 8), {.max_size = 1000, .insert_chunk = 3}),
            "error_buffer 8 is below samples_per_insert times the 3 items of "
            "one message = 12: a message could wait for samples that wait for "
            "its items; hint: raise error_buffer to 12");
  EXPECT_EQ(
      reason(Ratio(4, 10, 8), {.max_size = 1000, .samples_in_flight = 512}),
      "error_buffer 8 is below the 512 samples that readers request at once: "
      "no reader might get a full batch; hint: raise error_buffer to 512");
  EXPECT_EQ(
      reason(Ratio(0.5, 10, 0.6), {.max_size = 1000, .samples_in_flight = 0}),
      "error_buffer 0.6 is below (samples_per_insert + 1) / 2 = 0.75: "
      "inserts and samples could wait for each other");
  EXPECT_EQ(reason(Ratio(4, 10, 8), {.max_size = 1000, .max_times_sampled = 3}),
            "max_times_sampled 3 is below samples_per_insert 4: items would be "
            "removed before they were sampled often enough");
  EXPECT_EQ(reason({.mode = RateLimiterMode::kQueue}, kLimits),
            "a queue needs max_times_sampled: otherwise a full queue would "
            "stay full");
}

// A checkpoint of a run with another ratio must not stop this one.
TEST(RateLimiterTest, RestoreWithOtherSettingsLeavesBothSidesInTheBuffer) {
  RateLimiter limiter(Ratio(4.0, 10, 8.0), kLimits);
  RateLimiter::State state = {
      .config = Ratio(32.0, 10, 64.0), .inserts = 1000, .samples = 32'000};
  limiter.Restore(state);
  EXPECT_EQ(limiter.error(), -8.0);
  EXPECT_EQ(limiter.AdmitInserts(1, 500), 1);
  state.samples = 10;
  limiter.Restore(state);
  EXPECT_EQ(limiter.error(), 8.0);
  EXPECT_EQ(limiter.AdmitSamples(100, 500), 16);
  // within the buffer nothing is changed
  state.samples = 4 * 990 + 3;
  limiter.Restore(state);
  EXPECT_EQ(limiter.error(), -3.0);
}

TEST(RateLimiterTest, RestoreWithTheSameSettingsGoesOnExactly) {
  RateLimiter limiter(Ratio(4.0, 10, 8.0), kLimits);
  // far out of the buffer, as when the table was emptied and filled again
  limiter.CountInserts(1000);
  RateLimiter restored(Ratio(4.0, 10, 8.0), kLimits);
  restored.Restore(limiter.state());
  EXPECT_EQ(restored.error(), 4.0 * 990);
  EXPECT_EQ(restored.inserts(), 1000);
}

TEST(WaitRecordTest, CountsFromTheFirstRefusal) {
  FakeClock clock;
  WaitRecord record;
  EXPECT_FALSE(record.is_waiting());
  record.NoteRefused("writer 7", clock.Now());
  clock.Advance(seconds(3));
  record.NoteRefused("writer 8", clock.Now());
  clock.Advance(seconds(2));
  EXPECT_EQ(record.who(), "writer 7");
  EXPECT_EQ(record.waiting_s(clock.Now()), 5.0);
  record.NoteAdmitted();
  EXPECT_FALSE(record.is_waiting());
  EXPECT_EQ(record.waiting_s(clock.Now()), 0.0);
}

}  // namespace
}  // namespace replicant::replay
