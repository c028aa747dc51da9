#include "engine/runtime/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/fs.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::runtime {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::RandomNormal;
using testing::ToDoubles;

// A store with an f32 and an i64 variable.
struct Program {
  explicit Program(const Shape& shape = Shape({2, 3}),
                   const std::string& name = "net/weight") {
    runner.graph().AddVariable({.name = name, .shape = shape});
    runner.graph().AddVariable(
        {.name = "step", .dtype = DType::kI64, .shape = Shape({})});
    runner.store().Declare(runner.graph());
  }
  VariableStore& store() { return runner.store(); }

  GraphRunner runner;
};

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    saved_.store().Set("net/weight", value_.view());
    SaveCheckpoint(path_, CopyVariables(saved_.store()),
                   {.step = 7, .metadata = {{"seed", "11"}}});
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "checkpoint-7";
  HostTensor value_ = RandomNormal(DType::kF32, Shape({2, 3}), /*seed=*/1);
  Program saved_;
};

TEST_F(CheckpointTest, WhatWasSavedIsLoaded) {
  Program loaded;
  const CheckpointInfo info = LoadCheckpoint(path_, loaded.store());
  EXPECT_EQ(info.step, 7);
  EXPECT_EQ(info.metadata,
            (std::map<std::string, std::string>{{"seed", "11"}}));
  EXPECT_EQ(ToDoubles(loaded.store().Get("net/weight").view()),
            ToDoubles(value_.view()));
}

TEST_F(CheckpointTest, NothingButTheCheckpointIsLeftInTheFolder) {
  int entries = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder_.path())) {
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST_F(CheckpointTest, IsNeverWrittenOver) {
  EXPECT_EQ(MessageOf([&] {
              SaveCheckpoint(path_, CopyVariables(saved_.store()), {});
            }),
            fmt::format("{}: already exists; a checkpoint is never overwritten",
                        path_.string()));
}

TEST_F(CheckpointTest, RefusesMetadataThatIsNotUtf8BeforeItWrites) {
  const std::filesystem::path path = folder_.path() / "new" / "checkpoint-8";
  const auto save = [&](const CheckpointInfo& info) {
    return MessageOf<InvalidArgument>(
        [&] { SaveCheckpoint(path, CopyVariables(saved_.store()), info); });
  };
  EXPECT_EQ(save({.metadata = {{"host", "caf\xE9"}}}),
            fmt::format("{}: the metadata 'host' is not UTF-8", path.string()));
  EXPECT_EQ(
      save({.metadata = {{"caf\xE9", "host"}}}),
      fmt::format("{}: the metadata 'caf\uFFFD' is not UTF-8", path.string()));
  EXPECT_FALSE(std::filesystem::exists(path.parent_path()));
}

TEST_F(CheckpointTest, RefusesAnotherShapeAndLeavesTheStore) {
  Program other(Shape({3, 3}));
  EXPECT_EQ(MessageOf([&] { LoadCheckpoint(path_, other.store()); }),
            fmt::format("{}/variables.safetensors: variable 'net/weight' is "
                        "f32[2,3], but the program needs f32[3,3]",
                        path_.string()));
  EXPECT_EQ(ToDoubles(other.store().Get("net/weight").view()),
            std::vector<double>(9, 0.0));
}

TEST_F(CheckpointTest, RefusesAnUnknownVariable) {
  Program other(Shape({2, 3}), "net/kernel");
  EXPECT_EQ(
      MessageOf([&] { LoadCheckpoint(path_, other.store()); }),
      fmt::format(
          "{}/variables.safetensors: holds variable 'net/weight', which the "
          "program lacks; hint: it was written by another configuration",
          path_.string()));
}

TEST_F(CheckpointTest, APartOfItIsLoaded) {
  GraphRunner part;
  part.graph().AddVariable({.name = "net/weight", .shape = Shape({2, 3})});
  part.store().Declare(part.graph());
  EXPECT_EQ(LoadPartOfCheckpoint(path_, part.store()).step, 7);
  EXPECT_EQ(ToDoubles(part.store().Get("net/weight").view()),
            ToDoubles(value_.view()));
  Program more;
  more.runner.graph().AddVariable({.name = "extra", .shape = Shape({1})});
  more.store().Declare(more.runner.graph());
  EXPECT_NE(MessageOf([&] {
              LoadPartOfCheckpoint(path_, more.store());
            }).find("lacks variable 'extra'"),
            std::string::npos);
  // the named ones alone
  Program named;
  named.runner.graph().AddVariable({.name = "extra", .shape = Shape({1})});
  named.store().Declare(named.runner.graph());
  EXPECT_EQ(LoadPartOfCheckpoint(path_, {"net/weight"}, named.store()).step, 7);
  EXPECT_EQ(ToDoubles(named.store().Get("net/weight").view()),
            ToDoubles(value_.view()));
  EXPECT_NE(
      MessageOf([&] {
        LoadPartOfCheckpoint(path_, {"net/weight", "extra"}, named.store());
      }).find("lacks variable 'extra'"),
      std::string::npos);
}

TEST_F(CheckpointTest, RefusesAMissingVariable) {
  Program more;
  more.runner.graph().AddVariable({.name = "extra", .shape = Shape({1})});
  more.store().Declare(more.runner.graph());
  EXPECT_EQ(MessageOf([&] { LoadCheckpoint(path_, more.store()); }),
            fmt::format("{}/variables.safetensors: lacks variable 'extra' of "
                        "the program; hint: it was written by another "
                        "configuration",
                        path_.string()));
}

TEST_F(CheckpointTest, RefusesANewerFormatAndDamage) {
  const std::filesystem::path info = path_ / "checkpoint.json";
  AtomicWriteFile(info, R"({"format": 2, "step": 7, "metadata": {}})");
  EXPECT_EQ(
      MessageOf([&] { LoadCheckpoint(path_, saved_.store()); }),
      fmt::format("{}: format 2; this program reads format 1", info.string()));
  AtomicWriteFile(info, R"({"format": 1, "step": 7.5, "metadata": {}})");
  EXPECT_EQ(MessageOf([&] { LoadCheckpoint(path_, saved_.store()); }),
            fmt::format("{}: want a whole number as 'step'", info.string()));
  AtomicWriteFile(info, R"({"format": 1, "step": 7)");
  EXPECT_EQ(
      MessageOf([&] { LoadCheckpoint(path_, saved_.store()); }),
      fmt::format("{}: not a JSON object; the file is damaged", info.string()));
}

}  // namespace
}  // namespace replicant::runtime
