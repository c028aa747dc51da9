#include "env/task_registry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "env/tasks/suite.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;

TEST(TaskRegistryTest, AnUnknownTaskIsAnErrorWithTheNearestName) {
  const TaskRegistry registry(SuiteTasks());
  EXPECT_EQ(registry.Find("cheetah-run").name, "cheetah-run");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { registry.Find("cheeta-run"); }),
            "task 'cheeta-run' is not known; did you mean 'cheetah-run'?; "
            "hint: `replicant train --list` or `env_rollout --list` prints all "
            "names");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { registry.Find("python-environment"); }),
      "task 'python-environment' is of a Python function; hint: `replicant`, "
      "Python's program, with REPLICANT_MAKE_ENV=FILE.py:NAME");
}

TEST(TaskRegistryTest, ANameIsGivenOnce) {
  const TemporaryFolder folder;
  TaskRegistry registry(SuiteTasks());
  registry.Add(testing::DefineSmallTask(folder));
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { registry.Add(testing::DefineSmallTask(folder)); }),
            "task 'small-push' is already registered");
}

TEST(TaskRegistryTest, MissingModelsAreAnErrorThatSaysWhatToDo) {
  const TaskRegistry registry(SuiteTasks());
  EXPECT_EQ(
      MessageOf<IoError>([&] {
        LoadModel(registry.Find("cheetah-run"), {.suite_folder = "/nowhere"});
      }),
      "cheetah-run: no folder /nowhere with the Control Suite's models; hint: "
      "without suite_folder, or with an empty one, the installed models are "
      "taken");
  const TemporaryFolder empty;
  EXPECT_EQ(
      MessageOf<IoError>([&] {
        LoadModel(registry.Find("cheetah-run"), {.suite_folder = empty.path()});
      }),
      "MJCF: " + (empty.path() / "cheetah.xml").string() + ": no such file");
}

TEST(TaskRegistryTest, ATaskOnAModelWithoutItsPartsSaysWhatIsMissing) {
  const TemporaryFolder folder;
  const TaskDefinition small = testing::DefineSmallTask(folder);
  const TaskRegistry registry(SuiteTasks());
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              MakeEnvironment(registry.Find("pendulum-swingup"),
                              {.mjcf = small.model});
            }),
            "pendulum-swingup: no body named 'pole' in the model");
}

// The message of a suite's task about a user's model.
std::string MessageOfBinding(const char* task, const std::string& model) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "own.xml";
  AtomicWriteFile(path, model);
  const TaskRegistry registry(SuiteTasks());
  return MessageOf<InvalidArgument>(
      [&] { MakeEnvironment(registry.Find(task), {.mjcf = path}); });
}

TEST(TaskRegistryTest, AModelWithoutTheTendonsOfItsGainsIsRefused) {
  EXPECT_EQ(MessageOfBinding("point_mass-hard",
                             "<mujoco><worldbody><body><joint type='slide'/>"
                             "<geom name='pointmass' size='.1'/></body>"
                             "<geom name='target' size='.1'/></worldbody>"
                             "</mujoco>"),
            "point_mass-hard: the model has 0 joints in its tendons, but needs "
            "two tendons with two joints each");
}

TEST(TaskRegistryTest, ADogWhoseMotorsHaveNoStateIsRefused) {
  EXPECT_EQ(MessageOfBinding(
                "dog-fetch",
                "<mujoco><option timestep='0.005'/><worldbody>"
                "<geom name='floor' type='plane' size='1 1 .1'/>"
                "<body><joint name='hip' type='hinge'/><geom size='.1'/></body>"
                "</worldbody><actuator><motor joint='hip'/></actuator>"
                "</mujoco>"),
            "dog-fetch: the model has 1 actuators and 0 activations; each "
            "actuator needs one activation");
}

TEST(TaskRegistryTest, AnEscapeWithoutATerrainIsRefused) {
  std::string world =
      "<geom name='floor' type='plane' size='1 1 .1'/>"
      "<body name='ball'><geom size='.1'/></body><site name='target'/>";
  for (const char* wall : {"wall_px", "wall_py", "wall_nx", "wall_ny"}) {
    world += fmt::format("<geom name='{}' size='.1'/>", wall);
  }
  EXPECT_EQ(MessageOfBinding("quadruped-escape", "<mujoco><worldbody>" + world +
                                                     "</worldbody></mujoco>"),
            "quadruped-escape: the model's first height field must be square, "
            "with a half side of at least 2 m");
}

}  // namespace
}  // namespace replicant::env
