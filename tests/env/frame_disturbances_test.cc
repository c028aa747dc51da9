#include "env/frame_disturbances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace replicant::env {
namespace {

using ::testing::ElementsAre;
using Bytes = std::vector<uint8_t>;

FrameDisturbances Make(const FrameDisturbanceConfig& config, size_t size) {
  return {config, RandomStream(5, "frames"), size};
}

// First bytes of the frames that are seen in place of 10, 20, 30, ...
Bytes Seen(FrameDisturbances* frames, int count, int64_t episode = 0) {
  Bytes seen;
  frames->Begin(episode);
  for (int i = 1; i <= count; ++i) {
    Bytes frame(1, static_cast<uint8_t>(10 * i));
    frames->Apply(frame);
    seen.push_back(frame[0]);
  }
  return seen;
}

TEST(FrameDisturbancesTest, AFrameArrivesLate) {
  FrameDisturbances frames = Make({.delay = 2}, 1);
  EXPECT_THAT(Seen(&frames, 5), ElementsAre(10, 10, 10, 20, 30));
  // the next episode knows nothing of the last one
  EXPECT_THAT(Seen(&frames, 4), ElementsAre(10, 10, 10, 20));
}

TEST(FrameDisturbancesTest, TheFrameBeforeALostOneIsSeenAgain) {
  FrameDisturbances all =
      Make({.dropped = {.probability = 1.0, .steps = 2}}, 1);
  EXPECT_THAT(Seen(&all, 5), ElementsAre(10, 10, 10, 10, 10));

  FrameDisturbances some =
      Make({.dropped = {.probability = 0.1, .steps = 3}}, 1);
  int num_lost = 0;
  for (int64_t episode = 0; episode < 40; ++episode) {
    const Bytes seen = Seen(&some, 25, episode);
    int run = 0;
    for (size_t i = 1; i < seen.size(); ++i) {
      if (seen[i] == seen[i - 1]) {
        ++run;
        ++num_lost;
        continue;
      }
      EXPECT_EQ(run % 3, 0) << "a loss lasts three frames";
      EXPECT_EQ(seen[i], 10 * (i + 1));
      run = 0;
    }
  }
  EXPECT_GT(num_lost, 0);
  EXPECT_LT(num_lost, 600);
}

TEST(FrameDisturbancesTest, NoiseHasItsStandardDeviationAndBytesTheirRange) {
  constexpr size_t kSize = 10'000;
  FrameDisturbances frames = Make({.gaussian = 8.0}, kSize);
  frames.Begin(0);
  Bytes first(kSize, 128), second(kSize, 128);
  frames.Apply(first);
  frames.Apply(second);
  EXPECT_NE(first, second);
  double sum = 0.0, squares = 0.0, product = 0.0;
  for (size_t i = 0; i < kSize; ++i) {
    const double a = first[i] - 128.0, b = second[i] - 128.0;
    sum += a;
    squares += a * a;
    product += a * b;
  }
  // 5 sigma of a mean, a variance (with 1/12 of rounding) and a covariance
  EXPECT_NEAR(sum / kSize, 0.0, 5.0 * 8.0 / std::sqrt(kSize));
  EXPECT_NEAR(squares / kSize, 64.0 + 1.0 / 12.0,
              5.0 * 64.0 * std::sqrt(2.0 / kSize));
  EXPECT_NEAR(product / kSize, 0.0, 5.0 * 64.0 / std::sqrt(kSize));

  Bytes dark(kSize, 0);
  frames.Apply(dark);
  EXPECT_LT(*std::ranges::max_element(dark), 60) << "no byte wraps";
}

TEST(FrameDisturbancesTest, AnEpisodeIsRepeated) {
  const FrameDisturbanceConfig config{
      .delay = 1, .gaussian = 5.0, .dropped = {.probability = 0.3}};
  FrameDisturbances frames = Make(config, 1), other = Make(config, 1);
  const Bytes first = Seen(&frames, 20, 0);
  const Bytes second = Seen(&frames, 20, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(Seen(&other, 20, 1), second);
}

}  // namespace
}  // namespace replicant::env
