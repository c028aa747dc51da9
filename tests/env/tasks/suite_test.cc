// Properties of every task of the suite; the numbers are held against
// dm_control in suite_parity_test.cc.
#include "env/tasks/suite.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/mujoco.h"
#include "env/rewards.h"
#include "env/task_registry.h"
#include "tests/env/tasks/every_task.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

TEST(SuiteTest, HasTheTasksOfDmControl) {
  EXPECT_EQ(TaskRegistry(SuiteTasks()).tasks().size(), 51U);
}

class EverySuiteTask : public ::testing::TestWithParam<std::string> {
 protected:
  EverySuiteTask()
      : definition_(TaskRegistry(SuiteTasks()).Find(GetParam())),
        model_(LoadModel(definition_, {})) {}

  std::unique_ptr<ControlEnvironment> Make(uint64_t seed) {
    return MakeEnvironment(definition_, {.seed = seed}, *model_);
  }

  const TaskDefinition definition_;
  const MjModelPtr model_;
};

// Observations and rewards of a few steps of two episodes, or of the second
// alone.
std::vector<double> Play(ControlEnvironment& environment,
                         int first_episode = 0) {
  const ActionSpec& spec = environment.action_spec();
  RandomStream random(5, "test");
  std::vector<double> all;
  std::vector<double> state(
      static_cast<size_t>(environment.observation_spec().state_size()));
  std::vector<double> action(spec.minimum.size());
  environment.SeekEpisode(first_episode);
  for (int episode = 0; episode < 2; ++episode) {
    const bool is_played = episode >= first_episode;
    if (is_played) {
      environment.Reset({.state = state});
      all.insert(all.end(), state.begin(), state.end());
    }
    for (int t = 0; t < 3; ++t) {
      for (double& a : action) a = random.Uniform(-1.0, 1.0);
      if (!is_played) continue;
      all.push_back(environment.Step(action, {.state = state}).reward);
      all.insert(all.end(), state.begin(), state.end());
    }
  }
  return all;
}

TEST_P(EverySuiteTask, SameSeedGivesTheSameBitsAndAnotherOthers) {
  const auto first = Make(1);
  const auto second = Make(1);
  const auto other = Make(2);
  const std::vector<double> numbers = Play(*first);
  EXPECT_EQ(numbers, Play(*second));
  EXPECT_NE(numbers, Play(*other));
  EXPECT_TRUE(std::all_of(numbers.begin(), numbers.end(),
                          [](double x) { return std::isfinite(x); }));
  EXPECT_EQ(first->counters().divergences, 0);
}

// A training that is resumed has nothing else of its environments.
TEST_P(EverySuiteTask, AnEpisodeIsMadeAgainFromItsNumberAndItsActions) {
  const std::vector<double> all = Play(*Make(1));
  const std::vector<double> second = Play(*Make(1), /*first_episode=*/1);
  EXPECT_EQ(second, std::vector<double>(
                        all.begin() +
                            static_cast<ptrdiff_t>(all.size() - second.size()),
                        all.end()));
  EXPECT_EQ(all.size(), 2 * second.size());
}

TEST_P(EverySuiteTask, AnEpisodeHasAThousandStepsButLqrHasNoLimit) {
  const auto environment = Make(1);
  if (GetParam().starts_with("lqr")) {
    EXPECT_EQ(environment->step_limit(), kInfinity);
  } else {
    EXPECT_EQ(std::ceil(environment->step_limit()), 1000.0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTasks, EverySuiteTask,
                         ::testing::ValuesIn(testing::TaskNames()),
                         testing::TestName);

// --- models that a user gives ---

std::unique_ptr<ControlEnvironment> MakeOfModel(const std::string& task,
                                                const std::string& mjcf) {
  const MjModelPtr model = CompileModel(*ParseMjcfText(mjcf, "own"), "own");
  return MakeEnvironment(TaskRegistry(SuiteTasks()).Find(task), {.seed = 1},
                         *model);
}

std::string MessageOfModel(const std::string& task, const std::string& mjcf) {
  return replicant::testing::MessageOf<InvalidArgument>(
      [&] { MakeOfModel(task, mjcf); });
}

// A body with a joint and a sensor of three numbers by the tasks' names.
std::string Walking(const std::string& body, const std::string& joint) {
  return "<mujoco><worldbody><body name='" + body + "'>" + joint +
         "<geom size='.1'/></body></worldbody><sensor><subtreelinvel name='" +
         body + "_subtreelinvel' body='" + body + "'/></sensor></mujoco>";
}

// Would catch: a joint's number taken for its place in qpos.
TEST(SuiteModelTest, TheCheetahTakesOnlyJointsOfOneNumber) {
  const std::string slide = "<joint type='slide' limited='true' range='-1 1'/>";
  EXPECT_EQ(MessageOfModel("cheetah-run", Walking("torso", "<freejoint/>")),
            "cheetah-run: the model has 1 joints with 7 numbers, want one "
            "number each");
  const std::string hinge = "<joint axis='1 0 0'/>";
  const auto environment =
      MakeOfModel("cheetah-run", Walking("torso", slide + hinge));
  EXPECT_EQ(environment->observation_spec().Find("position").shape, Shape({1}));
  // joints that are not there have no positions, as in NumPy
  EXPECT_EQ(MakeOfModel("cheetah-run", Walking("torso", ""))
                ->observation_spec()
                .Find("position")
                .shape,
            Shape({0}));
}

TEST(SuiteModelTest, TheCartpoleNeedsAnActuator) {
  EXPECT_EQ(MessageOfModel("cartpole-swingup", R"(<mujoco><worldbody>
      <body><joint name="slider" type="slide" axis="1 0 0"/><geom size=".1"/>
        <body><joint name="hinge_1"/><geom size=".1"/></body></body>
      </worldbody></mujoco>)"),
            "cartpole-swingup: the model has no actuator, want at least one");
}

// Would catch: numbers read beyond a joint's or a sensor's.
TEST(SuiteModelTest, AJointOrASensorOfFewerNumbersIsRefused) {
  EXPECT_EQ(MessageOfModel("fish-swim", R"(<mujoco><worldbody>
      <body name="torso"><joint name="root"/><geom name="mouth" size=".1"/>
        <geom name="target" size=".1"/></body></worldbody></mujoco>)"),
            "fish-swim: joint 'root' has the size 1, want at least 7");
  EXPECT_EQ(MessageOfModel("humanoid-walk", R"(<mujoco>
      <option timestep=".005"/><worldbody>
      <body name="torso"><joint name="a"/><geom size=".1"/></body>
      <body name="head"/></worldbody>
      <sensor><jointpos name="torso_subtreelinvel" joint="a"/></sensor>
      </mujoco>)"),
            "humanoid-walk: sensor 'torso_subtreelinvel' has the size 1, want "
            "at least 3");
  EXPECT_EQ(MessageOfModel("swimmer-swimmer6", R"(<mujoco><worldbody>
      <light name="target_light"/><geom name="target" size=".1"/>
      <body name="head"><geom name="nose" size=".1"/><site name="s"/></body>
      </worldbody><sensor><gyro site="s"/></sensor></mujoco>)"),
            "swimmer-swimmer6: the model's sensors have 3 numbers, want 12 and "
            "6 for each link");
}

// An arm and two boxes, and sensors without a name.
TEST(SuiteModelTest, TheStackersTouchesAreAllSensors) {
  std::string bodies;
  for (const char* joint :
       {"arm_root", "arm_shoulder", "arm_elbow", "arm_wrist", "finger",
        "fingertip", "thumb", "thumbtip"}) {
    bodies += std::string("<body><joint name='") + joint +
              "'/><geom size='.01' contype='0' conaffinity='0'/></body>";
  }
  for (const char* box : {"box0", "box1"}) {
    bodies += fmt::format(
        "<body name='{0}'><site name='{0}'/>"
        "<joint name='{0}_x' type='slide' axis='1 0 0'/>"
        "<joint name='{0}_z' type='slide' axis='0 0 1'/>"
        "<joint name='{0}_y' axis='0 1 0'/>"
        "<geom size='.01' contype='0' conaffinity='0'/></body>",
        box);
  }
  const auto environment = MakeOfModel(
      "stacker-stack_2",
      "<mujoco><worldbody>" + bodies +
          "<body name='hand'><site name='grasp'/></body><body name='target'>"
          "<site name='target'/><geom name='target' size='.1' contype='0' "
          "conaffinity='0'/></body></worldbody><sensor><framepos "
          "objtype='body' objname='hand'/><touch name='touch' "
          "site='grasp'/></sensor></mujoco>");
  EXPECT_EQ(environment->observation_spec().Find("touch").shape, Shape({4}));
  environment->Reset({});
  double* readings = environment->mutable_physics().mutable_data().sensordata;
  for (int i = 0; i < 4; ++i) readings[i] = i;
  std::vector<double> state(
      static_cast<size_t>(environment->observation_spec().state_size()));
  environment->Observe({.state = state});
  const auto first =
      static_cast<size_t>(environment->observation_spec().Offset("touch"));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(state[first + i], std::log1p(static_cast<double>(i)));
  }
}

// --- randomization ---

std::unique_ptr<ControlEnvironment> MakeRandomized(
    const std::string& task, const std::vector<FieldRandomization>& fields) {
  auto environment = MakeEnvironment(TaskRegistry(SuiteTasks()).Find(task),
                                     {.seed = 1, .randomization = fields});
  // a second draw begins from the defaults, too
  for (int episode = 0; episode < 2; ++episode) environment->Reset({});
  return environment;
}

// Would catch: numbers that a task sets after the draw, or measured before it.
TEST(SuiteRandomizationTest, ChangesTheNumbersThatTasksSet) {
  const auto spin = MakeRandomized("finger-spin", {{.fields = {"dof_damping"},
                                                    .names = "hinge",
                                                    .parameters = {2.0, 2.0}}});
  const Physics& finger = spin->physics();
  EXPECT_DOUBLE_EQ(finger.model().dof_damping[finger.DofAddress("hinge")],
                   0.06);
  const auto turn = MakeRandomized(
      "finger-turn_hard",
      {{.fields = {"site_size"}, .names = "target", .parameters = {2.0, 2.0}}});
  EXPECT_DOUBLE_EQ(
      turn->physics().model().site_size[3 * turn->physics().SiteId("target")],
      0.06);
  const auto reach = MakeRandomized(
      "reacher-hard",
      {{.fields = {"geom_size"}, .names = "target", .parameters = {2.0, 2.0}}});
  EXPECT_DOUBLE_EQ(
      reach->physics().model().geom_size[3 * reach->physics().GeomId("target")],
      0.03);
  const auto fish =
      MakeRandomized("fish-upright", {{.fields = {"geom_rgba"},
                                       .names = "target",
                                       .kind = RandomizationKind::kSet,
                                       .parameters = {0.5, 0.5}}});
  EXPECT_EQ(fish->physics()
                .model()
                .geom_rgba[4 * fish->physics().GeomId("target") + 3],
            0.5F);
}

// A dog of twice the weight, with its pelvis 10 cm lower: dm_control measures
// both at the start of each episode. It starts upright, in its default pose.
TEST(SuiteRandomizationTest, TheDogStandsByItsOwnWeightAndHeights) {
  const MjModelPtr model =
      LoadModel(TaskRegistry(SuiteTasks()).Find("dog-stand"), {});
  const auto environment = MakeRandomized(
      "dog-stand",
      {{.fields = {"body_mass", "body_inertia"}, .parameters = {2.0, 2.0}},
       {.fields = {"body_pos"}, .names = "pelvis", .parameters = {4.0, 4.0}}});
  Physics& physics = environment->mutable_physics();
  const double weight =
      -model->opt.gravity[2] * model->body_subtreemass[physics.BodyId("torso")];
  const auto reward = [&](double force) {
    double* readings = physics.mutable_data().sensordata;
    for (const char* paw : {"palm_L", "palm_R", "sole_L", "sole_R"}) {
      readings[physics.SensorAddress(paw)] = force / 4;
    }
    return environment->task().Reward(physics);
  };
  EXPECT_NEAR(reward(2 * weight), 1.0, 1e-9);
  // half of what it weighs: in the middle between 0.9 and 1
  EXPECT_NEAR(reward(weight), 0.95, 1e-9);
  EXPECT_NEAR(reward(0.0), 0.9, 1e-9);
}

}  // namespace
}  // namespace replicant::env
