#include "env/camera_walk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;

constexpr double kPi = std::numbers::pi;

// Cameras of the world and of the agent, a mass on a slide.
class CameraWalkTest : public ::testing::Test {
 protected:
  enum { kSide, kTop, kTrack, kWrist, kBehind, kLeft, kBetween };

  CameraWalkTest() {
    const auto path = folder_.path() / "cameras.xml";
    AtomicWriteFile(path, R"(<mujoco><worldbody>
        <camera name="side" pos="1 -4 2" xyaxes="1 0 0 0 .5 1"/>
        <camera name="top" pos="0 0 4" xyaxes="1 0 0 0 1 0"/>
        <body name="agent" pos="0 0 1">
          <camera name="track" mode="trackcom" pos="0 -3 0" xyaxes="1 0 0 0 0 1"/>
          <camera name="wrist" pos="0 0 1"/>
          <camera mode="trackcom" pos="0 3 0" xyaxes="-1 0 0 0 0 1"/>
          <camera mode="trackcom" pos="-3 0 0" xyaxes="0 -1 0 0 0 1"/>
          <camera mode="trackcom" pos="-2.1213203435596424 2.1213203435596424 0"
                  xyaxes="-1 -1 0 0 0 1"/>
          <joint type="slide" axis="1 0 0"/><geom size="0.3"/>
        </body></worldbody></mujoco>)");
    physics_ = std::make_unique<Physics>(CompileModel(*ParseMjcf(path), path),
                                         "cameras");
  }
  CameraPose Own(int camera) const {
    CameraPose pose;
    std::copy_n(physics_->data().cam_xpos + 3 * camera, 3,
                pose.position.data());
    std::copy_n(physics_->data().cam_xmat + 9 * camera, 9,
                pose.rotation.data());
    return pose;
  }
  CameraWalk Begun(const CameraWalkConfig& config, int camera,
                   const char* stream = "walk") const {
    CameraWalk walk(config, *physics_, camera);
    walk.Begin(*physics_, RandomStream(7, stream));
    return walk;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Physics> physics_;
};

template <typename Array>
void ExpectNear(const Array& a, const Array& b, double tolerance) {
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance);
}

// Without room to move, the pose is the camera's own: a wrong sign or order of
// a rotation would show. The looks differ from the models' by rounding.
TEST_F(CameraWalkTest, WithoutRoomThePoseIsTheCamerasOwn) {
  for (const int camera : {kSide, kTrack}) {
    const CameraWalk walk = Begun({.zoom_in = 1e-12}, camera);
    const CameraPose pose = walk.Pose(*physics_);
    ExpectNear(pose.position, Own(camera).position, 1e-9);
    ExpectNear(pose.rotation, Own(camera).rotation, 1e-9);
  }
  const CameraWalk down =
      Begun({.zoom_in = 1e-12, .upper_quadrant = false}, kTop);
  ExpectNear(down.Pose(*physics_).position, Own(kTop).position, 1e-9);
  ExpectNear(down.Pose(*physics_).rotation, Own(kTop).rotation, 1e-9);
}

// Distance and angles from the agent stay within the limits, reach far into
// them on both sides of the camera's own place, wherever it stands, and
// successive places are near each other.
TEST_F(CameraWalkTest, StaysWithinItsLimits) {
  const CameraWalkConfig config{.horizontal = 0.3,
                                .vertical = 0.2,
                                .roll = 0.1,
                                .zoom_in = 0.1,
                                .zoom_out = 0.5,
                                .max_velocity = 0.2,
                                .velocity_deviation = 0.1,
                                .max_roll_velocity = 0.05,
                                .roll_velocity_deviation = 0.01};
  struct Own {
    int camera;
    double angle;  // in the x-y plane from x
  };
  for (const Own& own : {Own{kTrack, -kPi / 2}, Own{kBehind, kPi / 2},
                         Own{kLeft, kPi}, Own{kBetween, 0.75 * kPi}}) {
    SCOPED_TRACE(own.camera);
    CameraWalk walk = Begun(config, own.camera);
    double nearest = 1e9, farthest = 0.0, left = 0.0, right = 0.0, low = 0.0;
    CameraPose before = walk.Pose(*physics_);
    for (int i = 0; i < 5000; ++i) {
      walk.Step();
      const CameraPose pose = walk.Pose(*physics_);
      // the agent is at (0, 0, 1), the camera's own place 3 from it
      const Vec3 from = {pose.position[0], pose.position[1],
                         pose.position[2] - 1.0};
      const double angle =
          std::remainder(std::atan2(from[1], from[0]) - own.angle, 2 * kPi);
      nearest = std::min(nearest, Norm(from));
      farthest = std::max(farthest, Norm(from));
      left = std::min(left, angle);
      right = std::max(right, angle);
      low = std::min(low, from[2]);
      // it looks at the agent, the point in the middle of the own camera's view
      const Vec3 look = {pose.rotation[2], pose.rotation[5], pose.rotation[8]};
      for (size_t k = 0; k < 3; ++k) {
        EXPECT_NEAR(look[k], from[k] / Norm(from), 1e-9) << "step " << i;
      }
      // the way of a step is limited in proportion to the distance of 3; being
      // moved back out to the nearest distance lengthens it by a second-order
      // term
      const Vec3 way = Minus(Span3(pose.position), Span3(before.position));
      EXPECT_LE(Norm(way), 0.2 * 3.0 / 4.0 * 1.01);
      before = pose;
    }
    EXPECT_GE(nearest, 2.7 - 1e-9);
    EXPECT_LT(nearest, 2.75);
    EXPECT_LE(farthest, 4.5 + 1e-9);
    EXPECT_GT(farthest, 4.4);
    EXPECT_GE(left, -0.3 - 1e-9);
    EXPECT_LT(left, -0.29);
    EXPECT_LE(right, 0.3 + 1e-9);
    EXPECT_GT(right, 0.29);
    EXPECT_GE(low, -1e-9) << "above the ground";
  }
}

TEST_F(CameraWalkTest, WithoutVelocityAnEpisodeHasOnePlace) {
  const CameraWalkConfig config{
      .horizontal = 0.3, .vertical = 0.3, .roll = 0.3};
  CameraWalk walk = Begun(config, kSide);
  const CameraPose pose = walk.Pose(*physics_);
  for (int i = 0; i < 3; ++i) walk.Step();
  ExpectNear(walk.Pose(*physics_).position, pose.position, 1e-12);
  ExpectNear(walk.Pose(*physics_).rotation, pose.rotation, 1e-12);
  const CameraPose again = Begun(config, kSide).Pose(*physics_);
  EXPECT_EQ(again.position, pose.position);
  const CameraPose other = Begun(config, kSide, "other").Pose(*physics_);
  EXPECT_NE(other.position, pose.position);
}

TEST_F(CameraWalkTest, FollowsTheAgentIfItsCameraDoes) {
  const CameraWalkConfig config{.horizontal = 0.3, .vertical = 0.3};
  const CameraWalk track = Begun(config, kTrack), side = Begun(config, kSide);
  const CameraPose before[] = {track.Pose(*physics_), side.Pose(*physics_)};
  physics_->mutable_qpos()[0] = 2.0;
  ASSERT_EQ(physics_->ForwardWithoutActuation(), PhysicsStatus::kOk);
  CameraPose moved = before[0];
  moved.position[0] += 2.0;
  ExpectNear(track.Pose(*physics_).position, moved.position, 1e-12);
  ExpectNear(track.Pose(*physics_).rotation, moved.rotation, 1e-12);
  EXPECT_EQ(side.Pose(*physics_).position, before[1].position);
  EXPECT_EQ(side.Pose(*physics_).rotation, before[1].rotation);
}

TEST_F(CameraWalkTest, RefusesCamerasWithoutAPlaceOfTheirOwn) {
  const auto message = [this](int camera) {
    return MessageOf<InvalidArgument>(
        [&] { CameraWalk({.roll = 0.1}, *physics_, camera); });
  };
  EXPECT_EQ(message(-1),
            "cameras: task.distractions.camera: the free camera does not move; "
            "allowed: a camera of the model");
  EXPECT_EQ(message(kWrist),
            "cameras: task.distractions.camera: camera 3 wrist is fixed to a "
            "body that moves; allowed: cameras of the world, and those that "
            "track a body");
}

}  // namespace
}  // namespace replicant::env
