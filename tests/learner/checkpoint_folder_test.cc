#include "learner/checkpoint_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "base/fs.h"
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

  // A complete checkpoint in which v is the step.
  void Save(CheckpointFolder& folder, int64_t step) {
    SavePart(folder, step);
    folder.Complete({.step = step, .id = folder.NextId()});
  }
  void SavePart(CheckpointFolder& folder, int64_t step) {
    store().Set(
        "v",
        Values(DType::kF32, Shape({1}), {static_cast<double>(step)}).view());
    folder.Save(runtime::CopyVariables(store()),
                {.step = step, .metadata = {}});
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
  EXPECT_FALSE(folder.NewestManifest().has_value());
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

TEST_F(CheckpointFolderTest, WhatIsNotCompleteIsNoCheckpoint) {
  CheckpointFolder folder(path_, 2);
  Save(folder, 4);
  SavePart(folder, 7);
  EXPECT_THAT(folder.Steps(), ElementsAre(4));
  EXPECT_EQ(folder.LoadNewest(store())->step, 4);
  EXPECT_EQ(folder.NewestManifest()->step, 4);
  // its id goes to the next, and its remains go with that
  EXPECT_EQ(folder.NextId(), 2U);
  SavePart(folder, 7);
  SavePart(folder, 9);
  folder.Complete({.step = 9, .id = 2, .has_input = true});
  EXPECT_THAT(folder.Steps(), ElementsAre(4, 9));
  EXPECT_FALSE(std::filesystem::exists(folder.PathOf(7)));
  const auto manifest = CheckpointFolder(path_, 2).NewestManifest();
  EXPECT_EQ(manifest->id, 2U);
  EXPECT_TRUE(manifest->has_input);
  EXPECT_EQ(manifest->epochs, std::nullopt);
  EXPECT_EQ(folder.NextId(), 3U);
}

TEST_F(CheckpointFolderTest, OneThatIsLeftOutDoesNotCount) {
  const CheckpointFolder folder(path_, 3);
  CheckpointFolder writer(path_, 3);
  for (const int64_t step : {3, 9}) Save(writer, step);
  folder.LeaveOut(9);
  EXPECT_THAT(folder.Steps(), ElementsAre(3));
  EXPECT_EQ(folder.LoadNewest(store())->step, 3);
  // its variables can still be looked at, until the next one is complete
  EXPECT_TRUE(std::filesystem::exists(folder.PathOf(9)));
  Save(writer, 12);
  EXPECT_FALSE(std::filesystem::exists(folder.PathOf(9)));
}

TEST_F(CheckpointFolderTest, DamagedOnesBehindTheNewestWholeOneAreLeftOut) {
  CheckpointFolder folder(path_, 4);
  std::set<int64_t> lost;  // parts elsewhere
  const auto leave_out = [&] {
    return folder.LeaveOutDamaged([&](const Manifest& manifest) {
      return lost.contains(manifest.step) ? fmt::format("{}", manifest.step)
                                          : "";
    });
  };
  EXPECT_EQ(leave_out(), "");
  for (const int64_t step : {3, 9, 12, 15}) Save(folder, step);
  EXPECT_EQ(leave_out(), "");
  EXPECT_THAT(folder.Steps(), ElementsAre(3, 9, 12, 15));
  std::filesystem::resize_file(folder.PathOf(15) / "variables.safetensors", 10);
  lost = {3, 12};
  EXPECT_EQ(leave_out(), "");
  EXPECT_THAT(folder.Steps(), ElementsAre(3, 9));
  // none is whole
  lost = {3, 9};
  EXPECT_EQ(leave_out(), "9");
  EXPECT_THAT(folder.Steps(), ElementsAre(3, 9));
}

TEST_F(CheckpointFolderTest, ACompleteOneIsNotWrittenOverOrDiscarded) {
  CheckpointFolder folder(path_, 2);
  Save(folder, 4);
  EXPECT_THROW(SavePart(folder, 4), IoError);
  folder.Discard(4);
  SavePart(folder, 6);
  folder.Discard(6);
  EXPECT_FALSE(std::filesystem::exists(folder.PathOf(6)));
  EXPECT_EQ(folder.LoadNewest(store())->step, 4);
}

TEST_F(CheckpointFolderTest, RefusesAFolderThatCannotBe) {
  std::ofstream(temporary_.path() / "file") << "x";
  EXPECT_THROW(CheckpointFolder(temporary_.path() / "file" / "f", 1), IoError);
  EXPECT_THROW(CheckpointFolder(path_, 0), InvalidArgument);
}

}  // namespace
}  // namespace replicant::learner
