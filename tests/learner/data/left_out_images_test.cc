// Data sets as tools and systems leave them: every image is read, or is counted
// by a reason and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "learner/data/encoded_images.h"
#include "learner/data/images_config.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::data {
namespace {

using replicant::testing::LogLines;
using replicant::testing::MessageOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
namespace fs = std::filesystem;

class LeftOutImagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CommandResult made =
        RunCommand({.command = {REPLICANT_PYTHON,
                                REPLICANT_SOURCE_DIR
                                "/tests/learner/data/make_left_out.py",
                                folder_.path().string()}},
                   std::chrono::minutes(3));
    ASSERT_TRUE(made.status.ok()) << made.output;
  }
  fs::path Path(const std::string& name) const { return folder_.path() / name; }
  std::unique_ptr<ImageSource> Shards(const std::string& name) const {
    return MakeEncodedSource(ListTarShards(Path(name)));
  }
  std::unique_ptr<ImageSource> Tree() const {
    return MakeEncodedSource(ListImageFolder(Path("tree")));
  }

  // Class and number of each image; image i has the grey level 60 i.
  static std::vector<std::pair<int, int>> ReadAll(const ImageSource& source) {
    std::vector<std::pair<int, int>> all;
    const auto reader = source.MakeReader();
    std::vector<uint8_t> rgb(4 * 4 * 3);
    for (int64_t i = 0; i < source.size(); ++i) {
      const int32_t label = reader->Read(i, View(1.0), 4, rgb);
      all.emplace_back(label, (rgb[0] + 30) / 60);
    }
    return all;
  }
  static std::map<std::string, int64_t> LeftOutOf(const ImageSource& source) {
    std::map<std::string, int64_t> counts;
    for (const LeftOut& one : source.left_out()) counts[one.reason] = one.count;
    return counts;
  }
  const std::vector<std::pair<int, int>> plain_ = {
      {0, 0}, {0, 1}, {1, 2}, {1, 3}};

 private:
  TemporaryFolder folder_;
};

TEST_F(LeftOutImagesTest, FilesOfToolsDoNotEndAnExample) {
  for (const char* name : {"plain.tar", "mac.tar", "folders.tar"}) {
    SCOPED_TRACE(name);
    const auto source = Shards(name);
    EXPECT_EQ(ReadAll(*source), plain_);
    EXPECT_EQ(source->num_classes(), 2);
    EXPECT_FALSE(HasLosses(*source));
  }
  EXPECT_TRUE(Shards("plain.tar")->left_out().empty());
  EXPECT_THAT(LeftOutOf(*Shards("mac.tar")),
              ElementsAre(Pair("hidden files and folders", 12)));
  EXPECT_THAT(LeftOutOf(*Shards("folders.tar")),
              ElementsAre(Pair("files without an extension", 4),
                          Pair("hidden files and folders", 16)));
}

TEST_F(LeftOutImagesTest, LinksInAShardAreReadAtTheirTarget) {
  EXPECT_THAT(ReadAll(*Shards("hard.tar")),
              ElementsAre(Pair(0, 0), Pair(1, 2), Pair(0, 0), Pair(1, 3)));
  EXPECT_THAT(ReadAll(*Shards("symbolic.tar")),
              ElementsAre(Pair(0, 0), Pair(1, 1), Pair(1, 2), Pair(1, 3)));
  EXPECT_THAT(ReadAll(*Shards("long_links.tar")),
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 2), Pair(1, 0)));
  const auto lost = Shards("lost_links.tar");
  EXPECT_EQ(ReadAll(*lost), plain_);
  EXPECT_TRUE(HasLosses(*lost));
  EXPECT_EQ(Describe(*lost),
            "4 images, 2 classes; left out: links to no file of the archive: 4 "
            "(lost_links.tar: 5.jpg), .cls files without an image: 1 "
            "(lost_links.tar: 5.cls)");
}

TEST_F(LeftOutImagesTest, SparseFilesOfAShardAreReadOrCounted) {
  const auto stored = Shards("sparse.tar");
  EXPECT_THAT(ReadAll(*stored),
              ElementsAre(Pair(0, 0), Pair(0, 0), Pair(1, 0), Pair(1, 0)));
  EXPECT_TRUE(stored->left_out().empty());
  EXPECT_EQ(ReadAll(*Shards("pax_size.tar")), plain_);
  for (const std::string name : {"holes_gnu.tar", "holes_pax.tar"}) {
    SCOPED_TRACE(name);
    const auto holes = Shards(name);
    EXPECT_EQ(ReadAll(*holes), plain_);
    EXPECT_TRUE(HasLosses(*holes));
    EXPECT_THAT(Describe(*holes),
                HasSubstr("sparse files with holes: 1 (" + name + ": 4.jpg)"));
  }
}

TEST_F(LeftOutImagesTest, ArchivesOneBehindTheOtherAreRead) {
  EXPECT_EQ(ReadAll(*Shards("concatenated.tar")), plain_);
  const auto behind = Shards("behind.tar");
  EXPECT_EQ(ReadAll(*behind), plain_);
  EXPECT_TRUE(HasLosses(*behind));
  EXPECT_THAT(Describe(*behind),
              HasSubstr("bytes behind the end that are no archive: 1"));
}

TEST_F(LeftOutImagesTest, OtherMembersOfAShardAreCounted) {
  const auto others = Shards("others.tar");
  EXPECT_EQ(ReadAll(*others), plain_);
  EXPECT_TRUE(HasLosses(*others));
  EXPECT_EQ(Describe(*others),
            "4 images, 2 classes; left out: .json files: 4 (others.tar: "
            "0.json), .seg.png files: 4 (others.tar: 0.seg.png), .gif files: 1 "
            "(others.tar: 5.gif), devices, pipes and other special files: 1 "
            "(others.tar: dev.jpg), .cls files without an image: 1 "
            "(others.tar: 5.cls)");
}

TEST_F(LeftOutImagesTest, FolderOfShardsNamesWhatIsNoShard) {
  const auto source = Shards("shards");
  EXPECT_EQ(ReadAll(*source), plain_);
  EXPECT_TRUE(HasLosses(*source));
  EXPECT_EQ(Describe(*source),
            "4 images, 2 classes; left out: hidden files and folders: 1 "
            "(._b.tar), files that are no tar files: 1 (README.md), compressed "
            "tar files: 2 (d.tar.gz), folders in a folder of tar files: 1 "
            "(more), tar files without an image: 1 (c.tar)");
  const std::string path = Path("compressed.tar").string();
  EXPECT_EQ(MessageOf<IoError>([&] { ListTarShards(path); }),
            path +
                ": compressed; want a tar file that is not, since its "
                "members are read at their places; hint: gunzip, unzstd or "
                "unxz");
}

TEST_F(LeftOutImagesTest, HiddenFoldersAreNoClasses) {
  const fs::path tree = Path("tree");
  MakeFolders(tree / ".ipynb_checkpoints");
  MakeFolders(tree / ".thumbnails");
  MakeFolders(tree / "__MACOSX/finch");
  MakeFolders(tree / "finch/.ipynb_checkpoints");
  for (const char* copy :
       {".thumbnails/x.jpg", "finch/.ipynb_checkpoints/1-checkpoint.jpg",
        "finch/._1.jpg", "__MACOSX/finch/._1.jpg"}) {
    fs::copy_file(tree / "finch/1.jpg", tree / copy);
  }
  const auto source = Tree();
  EXPECT_THAT(source->class_names(), ElementsAre("finch", "heron"));
  EXPECT_EQ(ReadAll(*source), plain_);
  EXPECT_FALSE(HasLosses(*source));
  EXPECT_EQ(Describe(*source),
            "4 images, 2 classes (finch, heron); left out: hidden files and "
            "folders: 5 (.ipynb_checkpoints)");

  // an evaluation may have folders that training lacks
  const fs::path evaluation = Path("evaluation");
  fs::copy(tree, evaluation, fs::copy_options::recursive);
  fs::remove_all(tree / ".thumbnails");
  EXPECT_EQ(ListImageFolder(evaluation, tree).images.size(), 4U);
}

TEST_F(LeftOutImagesTest, FilesThatAreNoImagesAreCounted) {
  const fs::path tree = Path("tree");
  for (const char* name : {"finch/2.gif", "finch/3.HEIC", "finch/notes.txt",
                           "heron/data", "outside.jpg"}) {
    AtomicWriteFile(tree / name, "x");
  }
  fs::create_symlink("nowhere.jpg", tree / "heron/lost.jpg");
  fs::create_symlink("round.jpg", tree / "heron/round.jpg");
  fs::create_symlink("nowhere", tree / "ibis");
  const auto source = Tree();
  EXPECT_EQ(ReadAll(*source), plain_);
  EXPECT_TRUE(HasLosses(*source));
  EXPECT_EQ(Describe(*source),
            "4 images, 2 classes (finch, heron); left out: links that lead "
            "nowhere: 3 (ibis), images outside the folder of a class: 1 "
            "(outside.jpg), .gif files: 1 (finch/2.gif), .heic files: 1 "
            "(finch/3.HEIC), .txt files: 1 (finch/notes.txt), files without an "
            "extension: 1 (heron/data)");
}

TEST_F(LeftOutImagesTest, EveryExtensionOfImageFolderIsRead) {
  const CommandResult made = RunCommand(
      {.command = {REPLICANT_PYTHON, "-c", R"(
import sys
from PIL import Image
for name in sys.argv[2:]:
    Image.new("RGB", (8, 8), (60, 60, 60)).save(sys.argv[1] + "/finch/" + name)
)",
                   Path("tree").string(), "a.ppm", "b.bmp", "c.pgm", "d.tif",
                   "e.tiff", "f.webp", "g.png", "h.jpeg", "I.JPG", "J.WebP"}},
      std::chrono::minutes(3));
  ASSERT_TRUE(made.status.ok()) << made.output;
  const auto source = Tree();
  EXPECT_EQ(source->size(), 14);
  EXPECT_THAT(source->ClassSizes(), ElementsAre(12, 2));
  const auto all = ReadAll(*source);
  EXPECT_EQ(std::ranges::count(all, std::pair(0, 1)), 11);
}

TEST_F(LeftOutImagesTest, EmptyAndForeignClassesAreNamed) {
  const fs::path tree = Path("tree");
  MakeFolders(tree / "ibis");
  MakeFolders(tree / "jay");
  AtomicWriteFile(tree / "jay/1.gif", "x");
  EXPECT_EQ(
      MessageOf<IoError>([&] { Tree(); }),
      tree.string() +
          ": classes without an image: ibis, jay; want .jpg, .jpeg, .png, "
          ".ppm, .bmp, .pgm, .tif, .tiff or .webp files; left out there: .gif "
          "files: 1 (jay/1.gif)");
  const fs::path training = Path("training");
  fs::copy(tree, training, fs::copy_options::recursive);
  fs::remove_all(training / "heron");
  fs::remove_all(training / "jay");
  EXPECT_EQ(MessageOf<IoError>([&] { ListImageFolder(tree, training); }),
            tree.string() + ": " + training.string() +
                " has no classes of these names: heron, jay; it has finch, "
                "ibis");
}

// One line always says what there is; it is a warning if images may be missing.
TEST_F(LeftOutImagesTest, LogSaysWhatASourceHas) {
  const ImagesConfig config = {.source = "image_folder",
                               .train = Path("tree"),
                               .evaluation = Path("tree")};
  const auto open = [&](Split split) {
    BuiltInImageSources().at(config.source)(config, split, /*seed=*/0);
  };
  const auto level = spdlog::default_logger()->level();
  spdlog::set_level(spdlog::level::info);
  {
    const LogLines all(spdlog::level::info), warnings;
    open(Split::kTrain);
    fs::remove_all(Path("tree/finch/deep"));
    open(Split::kEvaluation);
    EXPECT_THAT(all.lines(),
                ElementsAre("images.train: " + config.train +
                                ": 4 images, 2 classes (finch, heron)",
                            "images.evaluation: " + config.evaluation +
                                ": 3 images, 2 classes (finch, heron)"));
    EXPECT_THAT(warnings.lines(), ElementsAre());
  }
  AtomicWriteFile(Path("tree/finch/2.gif"), "x");
  const LogLines warnings;
  open(Split::kTrain);
  EXPECT_THAT(warnings.lines(), ElementsAre(HasSubstr(".gif files: 1")));
  spdlog::set_level(level);
}

}  // namespace
}  // namespace replicant::data
