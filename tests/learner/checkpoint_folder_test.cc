#include "learner/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "tests/support/graph_runner.h"

namespace replicant::learner {
namespace {

using ::testing::ElementsAre;
using testing::GraphRunner;
using testing::ToDoubles;
using testing::Values;

class CheckpointFolderTest : public ::testing::Test {
 protected:
  CheckpointFolderTest() {
    runner_.graph().AddVariable({.name = "v", .shape = Shape({1})});
    store().Declare(runner_.graph());
  }

  runtime::VariableStore& store() { return runner_.store(); }

  // A checkpoint in which v is the step.
  void Save(CheckpointFolder& folder, int64_t step) {
    store().Set(
        "v",
        Values(DType::kF32, Shape({1}), {static_cast<double>(step)}).view());
    folder.Save(store(), {.step = step, .metadata = {}});
  }

  TemporaryFolder temporary_;
  std::filesystem::path path_ = temporary_.path() / "checkpoints";
  GraphRunner runner_;
};

TEST_F(CheckpointFolderTest, KeepsTheNewest) {
  CheckpointFolder folder(path_, 2);
  for (const int64_t step : {5, 20, 100}) Save(folder, step);
  EXPECT_THAT(folder.Steps(), ElementsAre(20, 100));
  EXPECT_EQ(folder.PathOf(100), path_ / "step-000000000100");
}

TEST_F(CheckpointFolderTest, LoadsTheNewest) {
  CheckpointFolder folder(path_, 2);
  EXPECT_EQ(folder.LoadNewest(store()), std::nullopt);
  for (const int64_t step : {3, 9}) Save(folder, step);
  store().Set("v", Values(DType::kF32, Shape({1}), {0}).view());
  const auto info = CheckpointFolder(path_, 2).LoadNewest(store());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->step, 9);
  EXPECT_THAT(ToDoubles(store().Get("v").view()), ElementsAre(9));
}

TEST_F(CheckpointFolderTest, ADamagedCheckpointIsLeftOut) {
  CheckpointFolder folder(path_, 3);
  for (const int64_t step : {3, 9}) Save(folder, step);
  std::ofstream(folder.PathOf(9) / "checkpoint.json") << "{";
  EXPECT_EQ(folder.LoadNewest(store())->step, 3);
  EXPECT_THAT(ToDoubles(store().Get("v").view()), ElementsAre(3));
  std::filesystem::remove(folder.PathOf(3) / "variables.safetensors");
  EXPECT_THROW(folder.LoadNewest(store()), IoError);
}

TEST_F(CheckpointFolderTest, WhatIsNoCheckpointIsLeftAlone) {
  CheckpointFolder folder(path_, 1);
  for (const char* name :
       {"step-", "step-1x", ".step-000000000001.77", "best"}) {
    std::filesystem::create_directory(path_ / name);
  }
  for (const int64_t step : {1, 2, 3}) Save(folder, step);
  EXPECT_THAT(folder.Steps(), ElementsAre(3));
  EXPECT_TRUE(std::filesystem::exists(path_ / "best"));
}

TEST_F(CheckpointFolderTest, SavingAStepTwiceKeepsTheFirst) {
  CheckpointFolder folder(path_, 2);
  Save(folder, 4);
  folder.Save(store(), {.step = 4, .metadata = {{"late", "1"}}});
  EXPECT_TRUE(folder.LoadNewest(store())->metadata.empty());
}

TEST_F(CheckpointFolderTest, RefusesAFolderThatCannotBe) {
  std::ofstream(temporary_.path() / "file") << "x";
  EXPECT_THROW(CheckpointFolder(temporary_.path() / "file" / "f", 1), IoError);
  EXPECT_THROW(CheckpointFolder(path_, 0), InvalidArgument);
}

}  // namespace
}  // namespace replicant::learner
