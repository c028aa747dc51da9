#include "env/randomizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr int kDraws = 20'000;

// One joint of each kind, the free body far from the others.
constexpr const char* kAllJoints = R"(<mujoco>
  <option><flag contact="disable"/></option>
  <worldbody>
    <body><joint type="hinge" range="-30 60" limited="true"/><geom size=".1"/>
    <body><joint type="hinge"/><geom size=".1"/>
    <body><joint type="slide" range="-1 3" limited="true"/><geom size=".1"/>
    <body><joint type="slide"/><geom size=".1"/>
    <body><joint type="ball"/><geom size=".1"/>
    <body><joint type="ball" range="0 90" limited="true"/><geom size=".1"/>
    </body></body></body></body></body></body>
    <body pos="9 8 7"><freejoint/><geom size=".1"/></body>
  </worldbody>
</mujoco>)";

std::unique_ptr<Physics> MakePhysics(const char* mjcf) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.xml";
  AtomicWriteFile(path, mjcf);
  return std::make_unique<Physics>(CompileModel(*ParseMjcf(path), path));
}

struct Moments {
  double mean, deviation, low, high;
};

Moments MomentsOf(const std::vector<double>& values) {
  Moments m{.mean = 0, .deviation = 0, .low = values[0], .high = values[0]};
  for (const double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  for (const double v : values) {
    m.deviation += (v - m.mean) * (v - m.mean);
  }
  m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()));
  return m;
}

// Within 5 standard errors of the mean, and within the range.
void ExpectUniform(const std::vector<double>& values, double low, double high) {
  const Moments m = MomentsOf(values);
  const double deviation = (high - low) / std::sqrt(12.0);
  EXPECT_NEAR(m.mean, (low + high) / 2, 5 * deviation / std::sqrt(kDraws));
  EXPECT_NEAR(m.deviation, deviation, 0.03 * deviation);
  EXPECT_GE(m.low, low);
  EXPECT_LE(m.high, high);
}

TEST(RandomizersTest, EveryKindOfJointIsDrawnFromItsDistribution) {
  const auto physics = MakePhysics(kAllJoints);
  RandomStream random(1, "test");
  std::vector<std::vector<double>> columns(physics->qpos().size());
  for (int i = 0; i < kDraws; ++i) {
    physics->Reset();
    RandomizeJoints(*physics, random);
    for (size_t j = 0; j < columns.size(); ++j) {
      columns[j].push_back(physics->qpos()[j]);
    }
  }
  ExpectUniform(columns[0], -kPi / 6, kPi / 3);
  ExpectUniform(columns[1], -kPi, kPi);
  ExpectUniform(columns[2], -1.0, 3.0);
  const Moments free_slide = MomentsOf(columns[3]);
  EXPECT_EQ(free_slide.deviation, 0.0);

  // a uniform quaternion: every component has mean 0 and variance 1/4
  for (size_t j = 4; j < 8; ++j) {
    const Moments m = MomentsOf(columns[j]);
    EXPECT_NEAR(m.mean, 0.0, 5 * 0.5 / std::sqrt(kDraws));
    EXPECT_NEAR(m.deviation, 0.5, 0.01);
  }
  // w = cos(angle / 2), angle uniform up to 90 degrees
  std::vector<double> angles;
  for (const double w : columns[8]) angles.push_back(2 * std::acos(w));
  ExpectUniform(angles, 0.0, kPi / 2);

  // a free joint keeps its position; its quaternion has no negative component
  EXPECT_EQ(MomentsOf(columns[12]).low, 9.0);
  EXPECT_EQ(MomentsOf(columns[14]).high, 7.0);
  for (size_t j = 15; j < 19; ++j) EXPECT_GE(MomentsOf(columns[j]).low, 0.0);
}

TEST(RandomizersTest, QuaternionsHaveLengthOne) {
  const auto physics = MakePhysics(kAllJoints);
  RandomStream random(2, "test");
  RandomizeJoints(*physics, random);
  for (const size_t start : {4, 8, 15}) {
    EXPECT_NEAR(Norm(physics->qpos().subspan(start, 4)), 1.0, 1e-15);
  }
  EXPECT_NEAR(Norm(AzimuthQuaternion(1.3)), 1.0, 1e-15);
}

TEST(RandomizersTest, DrawsUntilThereIsNoContact) {
  const auto physics = MakePhysics(R"(<mujoco><worldbody>
      <geom type="plane" size="1 1 1"/>
      <body><joint name="z" type="slide" axis="0 0 1"/><geom size=".1"/></body>
    </worldbody></mujoco>)");
  int draws = 0;
  DrawUntilNoContact(*physics, /*max_attempts=*/5, [&] {
    ++draws;
    physics->mutable_qpos()[0] = draws < 4 ? 0.0 : 1.0;
  });
  EXPECT_EQ(draws, 4);
  EXPECT_EQ(physics->data().ncon, 0);

  EXPECT_EQ(replicant::testing::MessageOf<Error>([&] {
              DrawUntilNoContact(*physics, /*max_attempts=*/3,
                                 [&] { physics->mutable_qpos()[0] = 0.0; });
            }),
            "model: no start without contacts in 3 attempts");
}

}  // namespace
}  // namespace replicant::env
