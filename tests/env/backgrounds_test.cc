#include "env/backgrounds.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/images/encode_png.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

namespace fs = std::filesystem;
using replicant::testing::MessageOf;

class BackgroundsTest : public ::testing::Test {
 protected:
  // An image [height, width] whose columns are 0, 1, 2, ... times `step`.
  void Write(const std::string& name, int height, int width, int step) {
    std::vector<uint8_t> rgb(static_cast<size_t>(height * width) * 3);
    for (size_t i = 0; i < rgb.size(); ++i) {
      const size_t column = i / 3 % static_cast<size_t>(width);
      rgb[i] = static_cast<uint8_t>(column * static_cast<size_t>(step));
    }
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    AtomicWriteFile(path,
                    data::EncodePng({.height = height, .width = width}, rgb));
  }
  BackgroundConfig Config(int64_t num_videos = 0) const {
    return {.is_enabled = true,
            .folder = folder_.path().string(),
            .num_videos = num_videos};
  }
  std::string MessageOfConfig(const BackgroundConfig& config) {
    return MessageOf<ConfigError>([&] { Backgrounds(config, 4, 4); });
  }

  TemporaryFolder folder_;
};

TEST_F(BackgroundsTest, AFolderOfImagesIsOneVideo) {
  Write("b.png", 4, 4, 10);
  Write("a.png", 4, 4, 20);
  Write(".hidden.png", 4, 4, 0);
  AtomicWriteFile(folder_.path() / "notes.txt", "no image");
  const Backgrounds backgrounds(Config(), 4, 4);
  ASSERT_EQ(backgrounds.num_videos(), 1);
  ASSERT_EQ(backgrounds.num_images(0), 2);
  const auto first = backgrounds.Get(0, 0, 4, 4);
  ASSERT_EQ(first->size(), 48U);
  EXPECT_EQ((*first)[3], 20);
  EXPECT_EQ((*backgrounds.Get(0, 1, 4, 4))[3], 10);
  EXPECT_EQ(backgrounds.Get(0, 0, 4, 4), first) << "decoded once";
}

TEST_F(BackgroundsTest, FoldersOfImagesAreVideosByName) {
  for (const char* name : {"c/0.png", "a/0.png", "a/1.png", "b/0.png"}) {
    Write(name, 4, 4, 1);
  }
  Write("outside.png", 4, 4, 1);
  fs::create_directories(folder_.path() / "empty");
  const Backgrounds backgrounds(Config(), 4, 4);
  ASSERT_EQ(backgrounds.num_videos(), 3);
  EXPECT_EQ(backgrounds.num_images(0), 2);
  EXPECT_EQ(Backgrounds(Config(2), 4, 4).num_videos(), 2);
}

// Neither stretched nor with bars: of 8 columns the middle 4.
TEST_F(BackgroundsTest, TheMiddleFillsThePicture) {
  Write("a.png", 4, 8, 10);
  const Backgrounds backgrounds(Config(), 4, 4);
  const auto picture = backgrounds.Get(0, 0, 4, 4);
  for (size_t x = 0; x < 4; ++x) {
    EXPECT_EQ((*picture)[3 * x], 10 * (x + 2)) << x;
  }
  // half as large: means of two columns, with the filter's neighbours
  EXPECT_EQ(backgrounds.Get(0, 0, 2, 2)->size(), 12U);
  EXPECT_LT((*backgrounds.Get(0, 0, 2, 2))[0],
            (*backgrounds.Get(0, 0, 2, 2))[3]);
}

// No side of the middle is longer than the image's by a rounding error.
TEST_F(BackgroundsTest, EverySizeOfAPictureFitsIntoAnImage) {
  Write("a.png", 48, 85, 3);
  const Backgrounds backgrounds(Config(), 4, 4);
  for (int side = 1; side <= 128; ++side) {
    EXPECT_NO_THROW(backgrounds.Get(0, 0, side, side)) << side;
    EXPECT_NO_THROW(backgrounds.Get(0, 0, side, 2 * side)) << side;
  }
}

TEST_F(BackgroundsTest, AFolderThatCannotBeUsedIsRefused) {
  const std::string path = folder_.path().string();
  EXPECT_EQ(MessageOfConfig({.is_enabled = true}),
            "task.distractions.background.folder: empty; want a folder of "
            "images, or of folders of images, or "
            "task.distractions.background.enabled: false");
  EXPECT_EQ(MessageOfConfig(Config()),
            "task.distractions.background.folder: " + path +
                ": neither it nor a folder in it has .jpg, .jpeg, .png, .ppm, "
                ".bmp, .pgm, .tif, .tiff or .webp files");
  BackgroundConfig missing = Config();
  missing.folder += "/missing";
  EXPECT_TRUE(MessageOfConfig(missing).starts_with(
      "task.distractions.background.folder: "))
      << MessageOfConfig(missing);
  EXPECT_NE(MessageOfConfig(missing).find("/missing"), std::string::npos);
  Write("a.png", 4, 4, 1);
  EXPECT_EQ(MessageOfConfig(Config(2)),
            "task.distractions.background.videos: 2, but " + path +
                " has 1 with images; allowed: 0 (all) to 1");
}

TEST_F(BackgroundsTest, ADamagedFirstImageIsRefusedWithItsName) {
  AtomicWriteFile(folder_.path() / "a.png", "no picture");
  const std::string message =
      MessageOf<IoError>([&] { Backgrounds(Config(), 4, 4); });
  EXPECT_EQ(message, (folder_.path() / "a.png").string() +
                         ": not a JPEG, PNG, WebP, TIFF, BMP, PGM or PPM file");
}

}  // namespace
}  // namespace replicant::env
