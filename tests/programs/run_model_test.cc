#include "programs/run/run_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "tests/env/small_task.h"

namespace replicant::programs {
namespace {

using env::testing::MessageOf;

constexpr const char* kYaml = "task:\n  mjcf: \"\"\n";

class RunModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MakeFolders(run_);
    task_ = env::testing::DefineSmallTask(folder_);
    config_.task.name = task_.name;
  }
  std::string Keep() {
    return KeepModel(config_, env::TaskRegistry({task_}), run_, kYaml);
  }

  TemporaryFolder folder_;
  const std::filesystem::path run_ = folder_.path() / "run";
  env::TaskDefinition task_;
  RunConfig config_;
};

TEST_F(RunModelTest, TheCopyIsNamedInTheConfiguration) {
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
  EXPECT_TRUE(std::filesystem::exists(run_ / "model" / "model.xml"));
  // a model in the run's folder stays where it is, also where that has moved
  config_.task.mjcf = run_ / "model" / "model.xml";
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
}

// Would catch a run that gets a copy with every start, each of which is sent to
// every host.
TEST_F(RunModelTest, EachModelIsCopiedOnce) {
  const std::string text = ReadFile(task_.model);
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
  EXPECT_FALSE(std::filesystem::exists(run_ / "model-2"));
  AtomicWriteFile(task_.model, "<mujoco><option timestep='0.5'/></mujoco>");
  EXPECT_EQ(Keep(), "task:\n  mjcf: model-2/model.xml\n");
  EXPECT_EQ(Keep(), "task:\n  mjcf: model-2/model.xml\n");
  AtomicWriteFile(task_.model, text);
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
  // a start that was killed while it copied
  AtomicWriteFile(run_ / "model" / "model.xml", "<muj");
  EXPECT_EQ(Keep(), "task:\n  mjcf: model-3/model.xml\n");
}

// Would catch a start that compiles whatever lies beside the copy.
TEST_F(RunModelTest, OnlyTheCopyIsCompared) {
  int num_models = 0;
  task_.edit = [&num_models](mjSpec& /*spec*/) { ++num_models; };
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
  for (int i = 0; i < 20; ++i) {
    AtomicWriteFile(run_ / "model" / (std::to_string(i) + ".xml"), "<mujoco/>");
  }
  num_models = 0;
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
  EXPECT_EQ(num_models, 2);  // the original and its copy
}

// Only the edited model need compile.
TEST_F(RunModelTest, ComparesTheModelsThatTheTaskEdits) {
  AtomicWriteFile(task_.model, "<mujoco/>");
  task_.edit = [](mjSpec& spec) {
    mjs_addGeom(mjs_findBody(&spec, "world"), nullptr)->size[0] = 1.0;
  };
  EXPECT_EQ(Keep(), "task:\n  mjcf: model/model.xml\n");
}

TEST_F(RunModelTest, ACopyThatIsAnotherModelIsRefusedAndRemoved) {
  int num_calls = 0;
  task_.edit = [&num_calls](mjSpec& spec) {
    spec.option.timestep = 0.001 * ++num_calls;
  };
  EXPECT_EQ(MessageOf<ConfigError>([&] { Keep(); }),
            "task.mjcf: " + task_.model.string() +
                ": the run's copy is not the same model: its opt differs; "
                "hint: put the model's files into its folder, and name each by "
                "one name without folders");
  EXPECT_FALSE(std::filesystem::exists(run_ / "model"));
}

TEST_F(RunModelTest, AModelThatDoesNotLoadLeavesNoCopy) {
  AtomicWriteFile(task_.model,
                  "<mujoco><asset><mesh file='m.obj'/></asset>"
                  "</mujoco>");
  EXPECT_EQ(
      MessageOf<IoError>([&] { Keep(); }),
      "MJCF: " + task_.model.string() + ": Error: Error opening file 'm.obj'");
  EXPECT_FALSE(std::filesystem::exists(run_ / "model"));
}

}  // namespace
}  // namespace replicant::programs
