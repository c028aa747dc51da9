#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/images/encode_png.h"
#include "base/process.h"
#include "programs/check_data/check_data_program.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/format/chunk_format.h"
#include "replay/table/shard.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using replicant::testing::MessageOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class CheckDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    uint8_t grey = 0;
    for (const char* set : {"train", "evaluation"}) {
      for (const char* name : {"finch", "heron"}) {
        MakeFolders(Path(set) / name);
        for (const char* file : {"1.png", "2.png"}) {
          grey += 20;
          WriteImage(Path(set) / name / file, grey);
        }
      }
    }
  }
  // A shard of an image for each class.
  void WriteShard(const fs::path& path, const std::vector<int>& classes) {
    const fs::path files = Path("files of " + path.filename().string());
    MakeFolders(files);
    for (const int image_class : classes) {
      const std::string name = std::to_string(image_class);
      WriteImage(files / (name + ".png"), shard_grey_ += 3);
      AtomicWriteFile(files / (name + ".cls"), name);
    }
    const CommandResult tar = RunCommand(
        {.command = {"tar", "--sort=name", "-C", files, "-cf", path, "."}},
        std::chrono::minutes(1));
    ASSERT_TRUE(tar.status.ok()) << tar.output;
  }
  static void WriteImage(const fs::path& path, uint8_t grey) {
    const std::vector<uint8_t> rgb(8 * 4 * 3, grey);
    AtomicWriteFile(path, data::EncodePng({.height = 4, .width = 8}, rgb));
  }
  fs::path Path(const std::string& name) const { return folder_.path() / name; }

  // Calls `use` with the invocation of a configuration.
  template <typename Use>
  auto With(const std::vector<std::string>& overrides, Use use) const {
    const std::string text =
        "learner: {workload: resnet50}\n"
        "resnet50: {depth: 18, image_size: 32, num_classes: 2}\n"
        "images: {source: image_folder, threads: 2, train: " +
        Path("train").string() +
        ", evaluation: " + Path("evaluation").string() + "}\n";
    const Registry registry = Registry::BuiltIn();
    const auto loaded = LoadRunConfig(
        config::Document::FromText("run.yaml", text, overrides), registry);
    const Commands commands = Commands::InFolder(".");
    return use(Invocation{
        .registry = registry, .commands = commands, .loaded = loaded});
  }
  DataReport Check(const std::vector<std::string>& overrides = {},
                   int64_t max_images = 0) const {
    return With(overrides, [&](const Invocation& invocation) {
      return CheckData(invocation, max_images);
    });
  }

 private:
  TemporaryFolder folder_;
  uint8_t shard_grey_ = 0;
};

TEST_F(CheckDataTest, GoodImagesHaveNothingToMend) {
  const DataReport report = Check();
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.text,
              HasSubstr("images.train: " + Path("train").string() +
                        "\n  4 images, 2 classes\n  class 0: finch, 2 "
                        "images\n  class 1: heron, 2 images\n  2 to 2 images "
                        "in a class\n  read 4 of 4 images: 4 good, 0 damaged"));
  EXPECT_THAT(report.text, HasSubstr("by 2 threads at 32 pixels\n"));
  EXPECT_THAT(report.text, HasSubstr("images.evaluation: "));
  EXPECT_THAT(Check({}, 1).text,
              HasSubstr("read 1 of 4 images, evenly spread (--images 0 reads "
                        "all): 1 good"));
}

TEST_F(CheckDataTest, EachFaultIsNamedWithItsMend) {
  const std::string train = Path("train").string();
  const std::string evaluation = Path("evaluation").string();
  AtomicWriteFile(Path("train/finch/0.jpg"), "no image");
  AtomicWriteFile(Path("train/finch/3.gif"), "GIF89a");
  MakeFolders(Path("train/.ipynb_checkpoints"));
  fs::copy_file(Path("train/finch/1.png"), Path("train/heron/3.png"));
  fs::copy_file(Path("train/finch/2.png"), Path("evaluation/finch/3.png"));
  const DataReport report = Check({"resnet50.num_classes=1000"});
  EXPECT_THAT(
      report.problems,
      ElementsAre(
          "images.train: .gif files: 1 left out, the first is finch/3.gif; "
          "they may be images: convert or remove them",
          "images.train: damaged images: 1, the first is " + train +
              "/finch/0.jpg: not a JPEG, PNG, WebP, TIFF, BMP, PGM or PPM "
              "file; replace or remove them",
          "resnet50.num_classes: 1000, but images.train has 2 classes (finch, "
          "heron); want 2",
          "images.train: images that equal one of another class: 1, the "
          "first is " +
              train + "/heron/3.png, which equals " + train +
              "/finch/1.png; keep one of them",
          "images.evaluation: images that are training images too: 1, the "
          "first is " +
              evaluation + "/finch/3.png, which equals " + train +
              "/finch/2.png; take them out of one set"));
  EXPECT_THAT(report.text,
              HasSubstr("left out: hidden files and folders: 1, the first is "
                        ".ipynb_checkpoints\n"));
  EXPECT_THAT(report.text, HasSubstr("damaged: " + train + "/finch/0.jpg: "));
}

// Classes of shards are numbers, which nothing else checks.
TEST_F(CheckDataTest, AClassThatNoTrainingImageHasIsNamed) {
  WriteShard(Path("train.tar"), {0, 1});
  WriteShard(Path("evaluation.tar"), {0, 7});
  const DataReport report = Check(
      {"images.source=tar_shards", "images.train=" + Path("train.tar").string(),
       "images.evaluation=" + Path("evaluation.tar").string()});
  EXPECT_THAT(report.problems,
              Contains("images.evaluation: classes up to 7, but those of "
                       "images.train end at 1; take the others out"));
}

// All of an image is decoded: a run sees any part of it.
TEST_F(CheckDataTest, FindsDamageAtTheEndOfAFile) {
  const fs::path path = Path("train/finch/1.png");
  std::vector<uint8_t> rgb(512 * 64 * 3);
  for (size_t i = 0; i < rgb.size(); ++i) {
    rgb[i] = static_cast<uint8_t>(i * i % 251);
  }
  const std::string png = data::EncodePng({.height = 512, .width = 64}, rgb);
  AtomicWriteFile(path, png.substr(0, png.size() - 200));
  EXPECT_THAT(Check().problems,
              ElementsAre(HasSubstr("damaged images: 1, the first is " +
                                    path.string())));
}

TEST_F(CheckDataTest, SetThatCannotBeOpenedIsAProblem) {
  fs::rename(Path("evaluation/heron"), Path("evaluation/ibis"));
  EXPECT_THAT(Check().problems,
              ElementsAre(EndsWith("has no classes of these names: ibis; it "
                                   "has finch, heron")));
  EXPECT_THAT(Check({"images.evaluation=''"}).text,
              HasSubstr("images.evaluation: none\n"));
}

TEST_F(CheckDataTest, ExitCodeSaysWhetherThereIsAnythingToMend) {
  const auto run = [&](std::string* output) {
    ::testing::internal::CaptureStdout();
    const int code = With({}, [](const Invocation& invocation) {
      return CheckDataProgram().run(invocation);
    });
    *output = ::testing::internal::GetCapturedStdout();
    return code;
  };
  std::string output;
  EXPECT_EQ(run(&output), 0);
  EXPECT_THAT(output, EndsWith("nothing to mend\n"));
  AtomicWriteFile(Path("train/finch/3.gif"), "GIF89a");
  EXPECT_EQ(run(&output), 1);
  EXPECT_THAT(output, HasSubstr("\nto mend:\n  images.train: .gif files: 1"));
}

TEST_F(CheckDataTest, ConfigurationsWithoutImageFilesSayWhy) {
  EXPECT_EQ(Check({"images.source=synthetic", "images.train=''",
                   "images.evaluation=''"})
                .text,
            "images.source: synthetic: made in the step\n");
  EXPECT_EQ(
      MessageOf<ConfigError>([&] { Check({"learner.workload=d4pg"}); }),
      "learner.workload: d4pg learns from actors, not from images; allowed: a "
      "workload with images, or replay.prior.folder");
}

TEST_F(CheckDataTest, PriorDataIsReadAndComparedWithTheTask) {
  const replay::StepShape shape{.observation_bytes = 20, .action_bytes = 4};
  const fs::path folder = Path("prior");
  {
    replay::Shard shard({.shape = shape, .tables = {{}}}, &Clock::Real());
    replay::Checkpointer checkpointer({.folder = folder}, &shard);
    const std::vector<std::byte> observation(20), action(4);
    replay::ChunkBuilder chunk(shape, /*episode=*/1, /*first_step=*/0);
    chunk.AddStep(observation, action, 0.25F, 1.0F);
    chunk.AddStep(observation, action, 1.5F, 0.0F);
    chunk.AddLastObservation(observation);
    ASSERT_EQ(shard.TryInsert(1, 1, chunk.Finish({})),
              replay::InsertResult::kInserted);
    checkpointer.Save();
  }
  const std::vector<std::string> run = {
      "learner.workload=d4pg", "task.name=cartpole-swingup",
      "replay.prior.folder=" + folder.string()};
  const DataReport report = Check(run);
  EXPECT_EQ(report.text,
            "replay.prior.folder: " + folder.string() +
                "\n  steps: 2; whole episodes: 1, of which terminated: 1\n"
                "  rewards of a step from 0.25 to 1.5, 0.875 in the mean\n");
  EXPECT_THAT(report.problems,
              ElementsAre(folder.string() +
                          ": rewards outside [0, 1], which the task's are in; "
                          "import with reward_scale, or reward_of_repeat of "
                          "the task"));
  std::vector<std::string> other = run;
  other[1] = "task.name=pendulum-swingup";
  EXPECT_THAT(
      Check(other).problems,
      ElementsAre("replay.prior.folder: " + folder.string() +
                  ": its steps have 5 numbers beside the pixels, 1 of the "
                  "action, 0 bytes of a frame; the run's have 3 numbers beside "
                  "the pixels, 1 of the action, 0 bytes of a frame; hint: the "
                  "mapping of replicant data import"));
}

}  // namespace
}  // namespace replicant::programs
