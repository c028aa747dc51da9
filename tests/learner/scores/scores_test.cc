// FID and Inception Score, compared with SciPy and by hand.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/tensor/safetensors.h"
#include "learner/scores/feature_moments.h"
#include "learner/scores/inception_score.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using replicant::testing::MessageOf;

std::vector<float> Normal(int64_t count, uint64_t seed, double scale = 1.0) {
  RandomStream random(seed, "features");
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(scale * random.Normal());
  }
  return values;
}

FeatureMoments MomentsOf(const std::vector<float>& features, int64_t size) {
  FeatureMoments moments(size);
  moments.Add(features);
  return moments;
}

class ScoresBesideSciPyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const CommandResult made =
        RunCommand({.command = {REPLICANT_PYTHON,
                                REPLICANT_SOURCE_DIR
                                "/tests/learner/scores/make_scores.py",
                                folder_->path().string()}},
                   std::chrono::minutes(3));
    ASSERT_TRUE(made.status.ok()) << made.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static HostTensor Load(const std::string& name) {
    return SafetensorsReader(folder_->path() / "scores.safetensors").Read(name);
  }
  static FeatureMoments Moments(const std::string& name) {
    const HostTensor features = Load(name);
    FeatureMoments moments(features.shape()[1]);
    moments.Add(features.Span<float>());
    return moments;
  }

 private:
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(ScoresBesideSciPyTest, FrechetDistance) {
  for (const std::string name : {"full", "far_from_zero", "wide"}) {
    const double want = Load(name).Span<double>()[0];
    EXPECT_NEAR(FrechetDistance(Moments(name + "_a"), Moments(name + "_b")),
                want, 1e-6 * std::abs(want))
        << name;
  }
}

TEST_F(ScoresBesideSciPyTest, InceptionScore) {
  const HostTensor probabilities = Load("probabilities");
  const HostTensor want = Load("inception_score");
  const InceptionScore score = ComputeInceptionScore(
      probabilities.Span<float>(), probabilities.shape()[1], 4);
  EXPECT_NEAR(score.mean, want.Span<double>()[0], 1e-6);
  EXPECT_NEAR(score.deviation, want.Span<double>()[1], 1e-6);
}

TEST(FrechetDistanceTest, OfASetWithItselfIsZero) {
  const FeatureMoments moments = MomentsOf(Normal(100 * 8, 1), 8);
  EXPECT_NEAR(FrechetDistance(moments, moments), 0.0, 1e-9);
}

// One-dimensional distributions: (m_a - m_b)^2 + (s_a - s_b)^2.
TEST(FrechetDistanceTest, OfNumbersIsThatOfMeansAndDeviations) {
  const FeatureMoments a = MomentsOf({0, 2}, 1);   // mean 1, variance 2
  const FeatureMoments b = MomentsOf({3, 11}, 1);  // mean 7, variance 32
  EXPECT_NEAR(FrechetDistance(a, b), 36.0 + 18.0, 1e-9);
}

// Fewer vectors than dimensions, and dimensions that never change.
TEST(FrechetDistanceTest, CovariancesNeedNoFullRank) {
  std::vector<float> a = Normal(10 * 64, 2), b = Normal(12 * 64, 3);
  for (size_t i = 0; i < a.size(); i += 2) a[i] = 1.0F;
  for (size_t i = 0; i < b.size(); i += 2) b[i] = 1.0F;
  const double distance = FrechetDistance(MomentsOf(a, 64), MomentsOf(b, 64));
  EXPECT_GT(distance, 1.0);
  EXPECT_TRUE(std::isfinite(distance));
  EXPECT_NEAR(FrechetDistance(MomentsOf(a, 64), MomentsOf(a, 64)), 0.0, 1e-6);
}

TEST(FeatureMomentsTest, DoNotDependOnTheCutIntoCalls) {
  const std::vector<float> features = Normal(30 * 4, 4);
  FeatureMoments parts(4);
  const std::span<const float> all = features;
  parts.Add(all.first(12));
  parts.Add({});
  parts.Add(all.subspan(12));
  const FeatureMoments whole = MomentsOf(features, 4);
  EXPECT_EQ(parts.count(), 30);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(parts.Mean()[i], whole.Mean()[i], 1e-12);
  }
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(parts.Covariance()[i], whole.Covariance()[i], 1e-12);
  }
}

TEST(FeatureMomentsTest, RefuseWhatIsNoFeature) {
  FeatureMoments moments(4);
  EXPECT_THROW(moments.Add(std::vector<float>(6)), InvalidArgument);
  EXPECT_THROW(moments.Add(std::vector<float>(
                   4, std::numeric_limits<float>::quiet_NaN())),
               InvalidArgument);
  EXPECT_EQ(moments.count(), 0);
  moments.Add(std::vector<float>(4));
  EXPECT_NE(MessageOf([&] {
              moments.Covariance();
            }).find("a covariance of 1 vectors"),
            std::string::npos);
  EXPECT_THROW(FrechetDistance(FeatureMoments(2), FeatureMoments(3)),
               InvalidArgument);
}

TEST(InceptionScoreTest, CountsClassesThatAreSureAndEven) {
  std::vector<float> rows(20 * 5);
  for (size_t i = 0; i < 20; ++i) rows[5 * i + i % 5] = 1.0F;
  EXPECT_NEAR(ComputeInceptionScore(rows, 5, 2).mean, 5.0, 1e-9);
  EXPECT_NEAR(ComputeInceptionScore(rows, 5, 2).deviation, 0.0, 1e-9);
  const std::vector<float> unsure(20 * 5, 0.2F);
  EXPECT_NEAR(ComputeInceptionScore(unsure, 5, 2).mean, 1.0, 1e-6);
}

TEST(InceptionScoreTest, RefusesWhatIsNoDistribution) {
  EXPECT_THROW(ComputeInceptionScore(std::vector<float>(10, 1.0F), 5, 1),
               InvalidArgument);
  EXPECT_THROW(ComputeInceptionScore(std::vector<float>(10, 0.2F), 5, 3),
               InvalidArgument);
  EXPECT_THROW(ComputeInceptionScore(std::vector<float>(11, 0.2F), 5, 1),
               InvalidArgument);
}

}  // namespace
}  // namespace replicant::learner
