#include "learner/data/encoded_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "learner/data/images_config.h"
#include "tests/support/message_of.h"

namespace replicant::data {
namespace {

using replicant::testing::MessageOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;

// Makes a folder of images for each class, and the same images as two shards by
// Python's tarfile, in the formats of pax and GNU, with long names.
constexpr const char* kMakeSets = R"(
import io, pathlib, sys, tarfile
import numpy as np
from PIL import Image
root = pathlib.Path(sys.argv[1])
(root / "shards").mkdir()
formats = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]
shards = [tarfile.open(root / "shards" / f"s{i}.tar", "w", format=formats[i])
          for i in range(2)]
def add(shard, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    shard.addfile(info, io.BytesIO(data))
for label, name in enumerate(["cat", "dog", "emu"]):
    folder = root / "folder" / name
    (folder / "deep").mkdir(parents=True)
    (folder / "notes.txt").write_text("no image")
    for i in range(2):
        path = folder / ("a.jpg" if i == 0 else "deep/b.PNG")
        Image.new("RGB", (9, 8), (40 * label, 100 * i, 7)).save(path)
        key = f"{'long/' * 40}{label}-{i}"
        add(shards[i], key + ".jpg", path.read_bytes())
        add(shards[i], key + ".seg.png", b"a mask")
        add(shards[i], key + ".json", b"{}")
        add(shards[i], key + ".cls", f"{label}\n".encode())
for shard in shards:
    shard.close()
)";

class EncodedImagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CommandResult made = RunCommand(
        {.command = {REPLICANT_PYTHON, "-c", kMakeSets, root().string()}},
        std::chrono::minutes(3));
    ASSERT_TRUE(made.status.ok()) << made.output;
  }
  std::filesystem::path root() const { return folder_.path(); }

  // Class and colour of each image.
  static std::vector<std::vector<int>> ReadAll(const ImageSource& source) {
    std::vector<std::vector<int>> all;
    const auto reader = source.MakeReader();
    std::vector<uint8_t> rgb(4 * 4 * 3);
    for (int64_t i = 0; i < source.size(); ++i) {
      const int32_t label = reader->Read(i, View(1.0), 4, rgb);
      all.push_back({label, rgb[0], rgb[1], rgb[2]});
    }
    return all;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(EncodedImagesTest, FolderHasAClassForEachFolder) {
  EncodedImages images = ListImageFolder(root() / "folder");
  EXPECT_THAT(images.class_names, ElementsAre("cat", "dog", "emu"));
  EXPECT_EQ(images.num_classes, 3);
  const auto source = MakeEncodedSource(std::move(images));
  EXPECT_THAT(source->BlockSizes(), ElementsAre(6));
  const auto all = ReadAll(*source);
  ASSERT_EQ(all.size(), 6U);
  // a.jpg, then deep/b.PNG; a JPEG keeps a colour within 2 levels
  EXPECT_THAT(all[3], ElementsAre(1, 40, 100, 7));
  EXPECT_EQ(all[4][0], 2);
  EXPECT_NEAR(all[4][1], 80, 2);
  EXPECT_THAT(all[5], ElementsAre(2, 80, 100, 7));
}

// Would catch an accuracy against the wrong classes.
TEST_F(EncodedImagesTest, EvaluationHasTheNumbersOfTheClassesOfTraining) {
  namespace fs = std::filesystem;
  const fs::path evaluation = root() / "evaluation";
  fs::copy(root() / "folder", evaluation, fs::copy_options::recursive);
  fs::remove_all(evaluation / "cat");
  const ImagesConfig config = {.source = "image_folder",
                               .train = root() / "folder",
                               .evaluation = evaluation};
  const auto open = [&] {
    return BuiltInImageSources().at(config.source)(config, Split::kEvaluation,
                                                   /*seed=*/0);
  };
  const auto source = open();
  EXPECT_THAT(source->class_names(), ElementsAre("cat", "dog", "emu"));
  EXPECT_EQ(source->num_classes(), 3);
  const auto all = ReadAll(*source);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0][0], 1);
  EXPECT_EQ(all[3][0], 2);
  fs::rename(evaluation / "emu", evaluation / "fox");
  EXPECT_EQ(MessageOf<IoError>(open),
            evaluation.string() + ": " + config.train +
                " has no classes of these names: fox; it has cat, dog, emu");
}

TEST_F(EncodedImagesTest, FolderHasTheImagesBehindLinks) {
  namespace fs = std::filesystem;
  const fs::path cat = root() / "folder/cat";
  MakeFolders(root() / "store/more");
  fs::rename(cat / "a.jpg", root() / "store/more/a.jpg");
  fs::create_directory_symlink(root() / "store/more", cat / "link");
  // ways round in a circle, one through two links
  fs::create_directory_symlink(cat, cat / "deep/up");
  fs::create_directory_symlink(cat, root() / "store/more/back");
  const EncodedImages images = ListImageFolder(root() / "folder");
  EXPECT_EQ(images.images.size(), 6U);
  EXPECT_EQ(images.files[0], cat / "deep/b.PNG");
  EXPECT_EQ(images.files[1], cat / "link/a.jpg");
}

TEST_F(EncodedImagesTest, ShardsHoldTheSameImages) {
  const auto shards = MakeEncodedSource(ListTarShards(root() / "shards"));
  const auto files = MakeEncodedSource(ListImageFolder(root() / "folder"));
  EXPECT_THAT(shards->BlockSizes(), ElementsAre(3, 3));
  EXPECT_EQ(shards->num_classes(), 3);
  const auto in_files = ReadAll(*files);
  // the first shard has the first image of each class
  EXPECT_THAT(ReadAll(*shards),
              ElementsAre(in_files[0], in_files[2], in_files[4], in_files[1],
                          in_files[3], in_files[5]));
  const auto one = MakeEncodedSource(ListTarShards(root() / "shards/s1.tar"));
  EXPECT_EQ(one->size(), 3);
}

TEST_F(EncodedImagesTest, FoldersThatCannotBeUsedAreErrors) {
  const auto folder = [&](const std::filesystem::path& path) {
    return MessageOf<IoError>([&] { ListImageFolder(path); });
  };
  const std::string root_text = root().string();
  const auto evaluation = [&](const std::string& path) {
    return MessageOf<ConfigError>([&] {
      static_cast<void>(BuiltInImageSources().at("image_folder")(
          {.train = root_text, .evaluation = path}, Split::kEvaluation,
          /*seed=*/0));
    });
  };
  EXPECT_EQ(evaluation(root_text + "/none"),
            "images.evaluation: no such path: " + root_text + "/none");
  const std::string long_name(300, 'x');
  EXPECT_EQ(evaluation(long_name),
            "images.evaluation: File name too long: " + long_name);
  EXPECT_EQ(folder(root() / "none"), "cannot read folder: " + root_text +
                                         "/none: No such file or directory");
  EXPECT_EQ(folder(root() / "folder/cat/deep"),
            root_text +
                "/folder/cat/deep: no images; want a folder for each class; "
                "left out: images outside the folder of a class: 1 "
                "(b.PNG)");
  MakeFolders(root() / "folder/fox");
  EXPECT_EQ(folder(root() / "folder"),
            root_text +
                "/folder: classes without an image: fox; want .jpg, .jpeg, "
                ".png, .ppm, .bmp, .pgm, .tif, .tiff or .webp files");
}

TEST_F(EncodedImagesTest, ShardsThatCannotBeUsedAreErrors) {
  const auto shards = [&](const std::filesystem::path& path) {
    return MessageOf<IoError>([&] { ListTarShards(path); });
  };
  const std::string root_text = root().string();
  EXPECT_EQ(shards(root() / "folder"),
            root_text +
                "/folder: no images; want tar files with members KEY.jpg and "
                "KEY.cls; left out: folders in a folder of tar files: 3 "
                "(cat)");
  const std::string tar = ReadFile(root() / "shards/s1.tar");
  const auto path = root() / "bad.tar";
  AtomicWriteFile(path, tar.substr(0, 1560));
  EXPECT_THAT(shards(path), EndsWith("after its header"));
  AtomicWriteFile(path, tar.substr(0, 2100));
  EXPECT_THAT(shards(path), EndsWith("ends in a header at byte 2048"));
  AtomicWriteFile(path, "x" + tar.substr(1));
  EXPECT_EQ(shards(path), path.string() + ": no tar header at byte 0");
}

// A shard of one example with these members.
constexpr const char* kMakeShard = R"(
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w") as shard:
    for member in sys.argv[2:]:
        name, _, text = member.partition("=")
        info = tarfile.TarInfo(name)
        info.size = len(text)
        shard.addfile(info, io.BytesIO(text.encode()))
)";

TEST_F(EncodedImagesTest, ShardHasOneImageForEachKey) {
  const auto path = root() / "one.tar";
  const auto make = [&](const std::string& image, const std::string& label) {
    const CommandResult made = RunCommand(
        {.command = {REPLICANT_PYTHON, "-c", kMakeShard, path.string(),
                     "a.jpg=x", image, "a.cls=" + label}},
        std::chrono::minutes(3));
    ASSERT_TRUE(made.status.ok()) << made.output;
  };
  const auto problem = [&] {
    return MessageOf<IoError>([&] { ListTarShards(path); });
  };
  make("a.depth.jpg=y", "1048575\n");
  EXPECT_EQ(ListTarShards(path).images.size(), 1U);
  EXPECT_EQ(ListTarShards(path).num_classes, 1 << 20);
  // as many counts would be kept for classes without an image
  for (const std::string label : {"1048576", "2147483647"}) {
    make("a.depth.jpg=y", label);
    EXPECT_EQ(problem(), path.string() +
                             ": a.cls: want the number of a class, 0 to "
                             "1048575, got '" +
                             label + "'");
  }
  make("a.png=y", "3");
  EXPECT_EQ(problem(),
            path.string() + ": two images of one example: a.jpg and a.png");
}

// Sets the limit of open files of this process; restores it.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &old_);
    const rlimit changed = {.rlim_cur = limit, .rlim_max = old_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &changed);
  }
  ~OpenFilesLimit() { setrlimit(RLIMIT_NOFILE, &old_); }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;

 private:
  rlimit old_ = {};
};

TEST_F(EncodedImagesTest, OnlyDamagedAndMissingImagesAreDamaged) {
  const auto source = MakeEncodedSource(ListImageFolder(root() / "folder"));
  const auto path = root() / "folder/cat/a.jpg";
  const auto reader = source->MakeReader();
  std::vector<uint8_t> rgb(4 * 4 * 3);
  const auto read = [&] { reader->Read(0, View(1.0), 4, rgb); };
  read();
  {
    // a whole file does not stay open, so this one is opened again
    const OpenFilesLimit limit(0);
    EXPECT_THROW(
        {
          try {
            read();
          } catch (const DamagedImage&) {
          }
        },
        IoError);
    EXPECT_EQ(MessageOf<IoError>(read),
              "cannot open: " + path.string() +
                  ": Too many open files; hint: raise the limit of the "
                  "process, ulimit -n");
  }
  std::filesystem::remove(path);
  EXPECT_EQ(MessageOf<DamagedImage>(read),
            "cannot open: " + path.string() + ": No such file or directory");
}

// An image that is damaged after it was listed names its file.
TEST_F(EncodedImagesTest, UnreadableImageIsNamed) {
  const auto source = MakeEncodedSource(ListImageFolder(root() / "folder"));
  const auto path = root() / "folder/cat/a.jpg";
  AtomicWriteFile(path, "text");
  std::vector<uint8_t> rgb(4 * 4 * 3);
  EXPECT_EQ(
      MessageOf<DamagedImage>(
          [&] { source->MakeReader()->Read(0, View(1.0), 4, rgb); }),
      path.string() + ": not a JPEG, PNG, WebP, TIFF, BMP, PGM or PPM file");
}

}  // namespace
}  // namespace replicant::data
