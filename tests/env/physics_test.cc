#include "env/physics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using ::testing::HasSubstr;

MjModelPtr ModelOf(const std::string& mjcf) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.xml";
  AtomicWriteFile(path, mjcf);
  return CompileModel(*ParseMjcf(path), path);
}

TEST(PhysicsTest, FindsPartsByNameAndSuggestsTheNearest) {
  const Physics physics(ModelOf(testing::kSmallModel), "small");
  EXPECT_EQ(physics.BodyId("mass"), 1);
  EXPECT_EQ(physics.QposAddress("slide"), 0);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { physics.BodyId("mas"); }),
            "small: no body named 'mas' in the model; did you mean 'mass'?");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { physics.SensorAddress("touch"); }),
            "small: no sensor named 'touch' in the model");
}

TEST(PhysicsTest, StepsGiveTheStateOfPlainSteppingWithFramesUpToDate) {
  Physics physics(ModelOf(testing::kSmallModel));
  const MjModelPtr model = CopyModel(physics.model());
  const MjDataPtr plain = MakeData(*model);
  physics.mutable_ctrl()[0] = plain->ctrl[0] = 1.0;
  EXPECT_EQ(physics.Step(3), PhysicsStatus::kOk);
  for (int i = 0; i < 3; ++i) mj_step(model.get(), plain.get());
  // a Runge-Kutta model and one with Euler integration would differ here
  EXPECT_NEAR(physics.qpos()[0], plain->qpos[0], 1e-15);
  EXPECT_EQ(physics.BodyPosition(1)[0], physics.qpos()[0]);
  // plain stepping leaves the frames one step behind
  EXPECT_NE(plain->xpos[3], plain->qpos[0]);
}

TEST(PhysicsTest, AForwardPassWithoutActuationIgnoresControls) {
  Physics physics(ModelOf(testing::kSmallModel));
  physics.mutable_ctrl()[0] = 1.0;
  EXPECT_EQ(physics.ForwardWithoutActuation(), PhysicsStatus::kOk);
  EXPECT_EQ(physics.data().qacc[0], 0.0);
  EXPECT_EQ(physics.model().opt.disableflags & mjDSBL_ACTUATION, 0);
}

TEST(PhysicsTest, AStateThatIsNotANumberIsADivergenceWithAReason) {
  Physics physics(ModelOf(testing::kSmallModel));
  physics.mutable_qvel()[0] = std::nan("");
  EXPECT_EQ(physics.Step(1), PhysicsStatus::kDiverged);
  EXPECT_THAT(physics.WarningText(), HasSubstr("Nan"));
  physics.Reset();
  EXPECT_EQ(physics.WarningText(), "");
  EXPECT_EQ(physics.Step(1), PhysicsStatus::kOk);
}

// Two boxes whose contacts do not fit into the arena, and a motor with a
// sensor. Would catch: actuators or sensors that stay off for good.
TEST(PhysicsTest, AfterAnErrorOfMujocosAResetIsANewStart) {
  const MjModelPtr model = ModelOf(R"(<mujoco>
    <size memory="10K"/><option gravity="0 0 0"/>
    <worldbody>
      <body><joint name="joint" axis="0 1 0"/>
        <geom size=".1" pos="0 3 0" mass="1"/></body>
      <body pos="1 0 0"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
      <body pos="2 0 0"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
    </worldbody>
    <actuator><motor joint="joint"/></actuator>
    <sensor><jointvel joint="joint"/></sensor></mujoco>)");
  const auto play = [](Physics& physics) {
    physics.Reset();
    physics.mutable_ctrl()[0] = 1.0;
    EXPECT_EQ(physics.Step(2), PhysicsStatus::kOk);
    return std::vector<double>{physics.qpos()[0], physics.qvel()[0],
                               physics.Sensor(0, 1)[0]};
  };
  Physics fresh(CopyModel(*model));
  const std::vector<double> wanted = play(fresh);
  EXPECT_GT(wanted[2], 0.5);
  const auto expect_a_new_start_after = [&](const auto& call) {
    Physics physics(CopyModel(*model));
    physics.mutable_qpos()[1] = 1.9;  // into the other box
    EXPECT_THAT(MessageOf<Error>([&] { call(physics); }),
                HasSubstr("MuJoCo: mj_stackAlloc: out of memory"));
    EXPECT_EQ(physics.model().opt.disableflags, 0);
    EXPECT_EQ(play(physics), wanted);
  };
  expect_a_new_start_after(
      [](Physics& physics) { (void)physics.ForwardWithoutActuation(); });
  expect_a_new_start_after([](Physics& physics) { (void)physics.Step(2); });
}

// A thousand environments would hold 160 MB of zeros.
TEST(PhysicsTest, AResetGivesBackThePagesOfTheSolversStatistics) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto num_resident = [&](const mjData& data) {
    const auto* begin = reinterpret_cast<const std::byte*>(data.solver);
    const size_t head = page - reinterpret_cast<uintptr_t>(begin) % page;
    std::vector<unsigned char> pages((sizeof(data.solver) - head) / page);
    // the pages are the test's to ask about; they are not changed
    auto* first = const_cast<std::byte*>(begin + head);
    EXPECT_EQ(mincore(first, pages.size() * page, pages.data()), 0);
    return std::ranges::count_if(pages, [](auto p) { return (p & 1) != 0; });
  };
  Physics physics(ModelOf(testing::kSmallModel));
  EXPECT_EQ(physics.Step(2), PhysicsStatus::kOk);
  EXPECT_LE(num_resident(physics.data()), 1);
  // MuJoCo itself clears them, so that nothing is lost
  const MjDataPtr data = MakeData(physics.model());
  data->solver[mjNSOLVER].neval = 3;
  mj_resetData(&physics.model(), data.get());
  EXPECT_GT(num_resident(*data), 30);
  EXPECT_TRUE(
      std::ranges::all_of(std::as_bytes(std::span(data->solver)),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST(PhysicsTest, VectorsTurnIntoAFrame) {
  // a frame turned by 90 degrees around z: its x axis is the world's y axis
  const std::array<double, 9> frame = {0, -1, 0, 1, 0, 0, 0, 0, 1};
  const Vec3 v = {1.0, 2.0, 3.0};
  EXPECT_EQ(ToFrame(v, frame), (Vec3{2.0, -1.0, 3.0}));
  EXPECT_EQ(Minus(v, Vec3{1.0, 1.0, 1.0}), (Vec3{0.0, 1.0, 2.0}));
  EXPECT_EQ(Norm(Vec3{2.0, 3.0, 6.0}), 7.0);
}

}  // namespace
}  // namespace replicant::env
