#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace replicant {
namespace {

using Block = std::array<uint32_t, 4>;

// The known answers that come with the authors' Random123 library.
TEST(PhiloxTest, MatchesTheAuthorsKnownAnswers) {
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
                       {0xA4093822, 0x299F31D0}),
            (Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

// Would catch a change of the stream's definition, which would silently change
// every recorded run.
TEST(RandomStreamTest, FirstNumbersOfAStreamStayWhatTheyAre) {
  RandomStream stream(/*seed=*/1, "actor-0/exploration");
  const uint64_t first = stream();
  RandomStream again(/*seed=*/1, "actor-0/exploration");
  EXPECT_EQ(again(), first);
  EXPECT_EQ(first, UINT64_C(3069040406230847251));
}

TEST(RandomStreamTest, SeedNameAndSplitOfTheNameAllMatter) {
  const RandomStream root(1, "a");
  std::vector<RandomStream> streams = {
      root,
      RandomStream(2, "a"),
      RandomStream(1, "b"),
      RandomStream(1, "ab"),
      RandomStream(1, std::string("a\0", 2)),
      RandomStream(1, "12345678"),
      RandomStream(1, "123456789"),
      root.Substream("b"),
      root.Substream("bc"),
      root.Substream("b").Substream("c"),
  };
  std::set<uint64_t> first;
  for (RandomStream& stream : streams) first.insert(stream());
  EXPECT_EQ(first.size(), streams.size());
}

// Would catch a draw that takes more or less than one step, on which
// checkpoints and parallel draws rely.
TEST(RandomStreamTest, PositionIsTheWholeState) {
  RandomStream stream(3, "state");
  stream.Uniform();
  stream.UniformInt(10);
  stream.Normal();
  EXPECT_EQ(stream.position(), 3U);
  const double next = stream.Normal();

  RandomStream restored(3, "state");
  restored.set_position(3);
  EXPECT_EQ(restored.Normal(), next);
}

// Bounds are 5 standard errors of the sample moments.
TEST(RandomStreamTest, MomentsAreThoseOfTheDistributions) {
  constexpr int kCount = 200'000;
  RandomStream stream(4, "moments");
  double uniform_sum = 0.0, normal_sum = 0.0, normal_squares = 0.0;
  for (int i = 0; i < kCount; ++i) {
    uniform_sum += stream.Uniform();
    const double x = stream.Normal();
    normal_sum += x;
    normal_squares += x * x;
  }
  const double root = std::sqrt(double{kCount});
  EXPECT_NEAR(uniform_sum / kCount, 0.5, 5.0 * std::sqrt(1.0 / 12.0) / root);
  EXPECT_NEAR(normal_sum / kCount, 0.0, 5.0 / root);
  EXPECT_NEAR(normal_squares / kCount, 1.0, 5.0 * std::sqrt(2.0) / root);
}

TEST(RandomStreamTest, UniformIntHitsEveryValueEquallyOften) {
  constexpr int kCount = 60'000;
  RandomStream stream(5, "die");
  std::vector<int> hits(6, 0);
  for (int i = 0; i < kCount; ++i) {
    ++hits[static_cast<size_t>(stream.UniformInt(6))];
  }
  const double sigma = std::sqrt(kCount * (1.0 / 6.0) * (5.0 / 6.0));
  for (const int h : hits) EXPECT_NEAR(h, kCount / 6.0, 5.0 * sigma);
}

TEST(RandomStreamTest, UniformStaysBelowItsUpperEnd) {
  RandomStream stream(6, "edge");
  const double low = 1.0;
  const double high = std::nextafter(low, 2.0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(stream.Uniform(low, high), low);
}

TEST(RandomStreamTest, RejectsAnEmptyRange) {
  RandomStream stream(7, "bad");
  try {
    stream.UniformInt(0);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "UniformInt: count must be > 0, got 0");
  }
  EXPECT_EQ(stream.position(), 0U);
}

// Would catch a change of a lone learner's numbers, and members that share
// their numbers.
TEST(MemberSeedTest, TheFirstMemberKeepsTheSeedAndOthersDiffer) {
  EXPECT_EQ(MemberSeed(/*seed=*/1, "learner", /*member=*/0), 1U);
  std::set<uint64_t> seeds;
  for (int member = 0; member < 100; ++member) {
    seeds.insert(MemberSeed(/*seed=*/1, "learner", member));
    seeds.insert(MemberSeed(/*seed=*/2, "learner", member));
  }
  EXPECT_EQ(seeds.size(), 200U);
  EXPECT_NE(MemberSeed(1, "learner", 1), MemberSeed(1, "replica", 1));
}

}  // namespace
}  // namespace replicant
