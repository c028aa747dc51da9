#include "env/task_registry.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "env/tasks/suite.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using testing::MessageOf;

TEST(TaskRegistryTest, AnUnknownTaskIsAnErrorWithTheNearestName) {
  const TaskRegistry registry(SuiteTasks());
  EXPECT_EQ(registry.Find("cheetah-run").name, "cheetah-run");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { registry.Find("cheeta-run"); }),
            "task 'cheeta-run' is not known; did you mean 'cheetah-run'?; "
            "hint: env_rollout --list prints all names");
}

TEST(TaskRegistryTest, ANameIsGivenOnce) {
  const TemporaryFolder folder;
  TaskRegistry registry(SuiteTasks());
  registry.Add(testing::DefineSmallTask(folder));
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { registry.Add(testing::DefineSmallTask(folder)); }),
            "task 'small-push' is registered already");
}

TEST(TaskRegistryTest, MissingModelsAreAnErrorThatSaysWhatToDo) {
  const TaskRegistry registry(SuiteTasks());
  EXPECT_EQ(
      MessageOf<IoError>([&] {
        LoadModel(registry.Find("cheetah-run"), {.suite_folder = "/nowhere"});
      }),
      "cheetah-run: no folder /nowhere with the Control Suite's models; hint: "
      "run scripts/setup, or set REPLICANT_SUITE_MODELS to the folder "
      "dm_control/suite of a dm_control 1.0.50");
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

}  // namespace
}  // namespace replicant::env
