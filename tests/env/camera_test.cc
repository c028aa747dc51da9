#include "env/camera.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;

class CameraTest : public ::testing::Test {
 protected:
  CameraTest() {
    const auto path = folder_.path() / "cameras.xml";
    AtomicWriteFile(path, R"(<mujoco><worldbody>
        <body><joint type="slide" axis="1 0 0"/><geom size="0.3"/></body>
        <camera name="side" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
        <camera pos="0 0 2"/>
        <camera name="1" pos="0 2 0" xyaxes="-1 0 0 0 0 1"/>
      </worldbody></mujoco>)");
    physics_ = std::make_unique<Physics>(CompileModel(*ParseMjcf(path), path),
                                         "three");
  }
  std::vector<uint8_t> Draw(const CameraOptions& options) {
    Camera camera(*physics_, options);
    std::vector<uint8_t> rgb(camera.size_bytes());
    camera.Render(*physics_, rgb);
    return rgb;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Physics> physics_;
};

TEST_F(CameraTest, IsFoundByNameAndByNumber) {
  EXPECT_EQ(FindCamera(*physics_, "side"), 0);
  EXPECT_EQ(FindCamera(*physics_, "0"), 0);
  EXPECT_EQ(FindCamera(*physics_, "-1"), -1);
  // a name goes before a number
  EXPECT_EQ(FindCamera(*physics_, "1"), 2);
  EXPECT_EQ(FindCamera(*physics_, "2"), 2);
}

TEST_F(CameraTest, AMissingCameraIsRefusedWithThoseThereAre) {
  for (const char* name : {"sid", "3", "-2", "", "0 ", "99999999999"}) {
    EXPECT_EQ(MessageOf<InvalidArgument>([&] { FindCamera(*physics_, name); }),
              std::string("three: no camera '") + name +
                  "'; allowed: -1 (free), 0 side, 1, 2 1");
  }
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Draw({.width = 0}); }),
            "Renderer: a picture of 84 x 0 requested; each side must be in [1, "
            "4096]");
}

// Most models have none.
TEST(ModelWithoutCameraTest, TheDefaultIsTheFreeCamera) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "bare.xml";
  AtomicWriteFile(path, "<mujoco/>");
  const Physics physics(CompileModel(*ParseMjcf(path), path), "bare");
  EXPECT_EQ(FindCamera(physics, CameraOptions{}.camera), -1);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { FindCamera(physics, "1"); }),
            "bare: no camera '1'; allowed: -1 (free)");
}

TEST_F(CameraTest, DrawsTheStateAndDoesNotChangeIt) {
  const int size = mj_stateSize(&physics_->model(), mjSTATE_INTEGRATION);
  std::vector<double> before(static_cast<size_t>(size)), after(before);
  mj_getState(&physics_->model(), &physics_->data(), before.data(),
              mjSTATE_INTEGRATION);
  const auto side = Draw({.height = 20, .width = 30});
  EXPECT_EQ(side.size(), 1800U);
  EXPECT_EQ(Draw({.camera = "side", .height = 20, .width = 30}), side);
  mj_getState(&physics_->model(), &physics_->data(), after.data(),
              mjSTATE_INTEGRATION);
  EXPECT_EQ(after, before);

  physics_->mutable_qpos()[0] = 0.2;
  ASSERT_EQ(physics_->ForwardWithoutActuation(), PhysicsStatus::kOk);
  EXPECT_NE(Draw({.height = 20, .width = 30}), side);
}

// Another camera's pose in place of its own gives the other's picture, once.
TEST_F(CameraTest, DrawsFromAnotherPose) {
  // to the right of one camera, to the left of the other
  physics_->mutable_qpos()[0] = 0.2;
  ASSERT_EQ(physics_->ForwardWithoutActuation(), PhysicsStatus::kOk);
  const auto other = Draw({.camera = "2", .height = 20, .width = 30});
  Camera camera(*physics_, {.camera = "side", .height = 20, .width = 30});
  std::vector<uint8_t> own(camera.size_bytes()), rgb(own);
  camera.Render(*physics_, own);
  ASSERT_NE(own, other);
  CameraPose pose;
  std::copy_n(physics_->data().cam_xpos + 6, 3, pose.position.data());
  std::copy_n(physics_->data().cam_xmat + 18, 9, pose.rotation.data());
  camera.Render(*physics_, rgb, {.pose = pose});
  EXPECT_EQ(rgb, other);
  camera.Render(*physics_, rgb);
  EXPECT_EQ(rgb, own);

  const std::vector<uint8_t> background(rgb.size(), 200);
  camera.Render(*physics_, rgb, {.background = background});
  EXPECT_EQ(rgb[0], 200);
  camera.Render(*physics_, rgb);
  EXPECT_EQ(rgb, own);

  Camera free(*physics_, {.camera = "-1", .height = 20, .width = 30});
  EXPECT_EQ(
      MessageOf<InvalidArgument>(
          [&] { free.Render(*physics_, rgb, {.pose = pose}); }),
      "three: a pose for the free camera; allowed: a camera of the model");
}

}  // namespace
}  // namespace replicant::env
