// Decoded and resized images are Pillow's.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/images/decode.h"
#include "base/images/resize.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/tensor/safetensors.h"
#include "tests/support/message_of.h"

namespace replicant::data {
namespace {

using replicant::testing::MessageOf;

Box Whole(const ImageSize& size) {
  return {.right = static_cast<double>(size.width),
          .bottom = static_cast<double>(size.height)};
}

int LargestDifference(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  }
  return largest;
}

class PillowTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const CommandResult made = RunCommand(
        {.command = {REPLICANT_PYTHON,
                     REPLICANT_SOURCE_DIR "/tests/learner/data/make_images.py",
                     folder_->path().string()}},
        std::chrono::minutes(3));
    ASSERT_TRUE(made.status.ok()) << made.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path Path(const std::string& name) {
    return folder_->path() / name;
  }
  static HostTensor Pixels(const std::string& name) {
    return SafetensorsReader(Path("pixels.safetensors")).Read(name);
  }
  static Image Decode(std::string_view bytes, const ChooseBox& choose,
                      int64_t min_side, Box* box) {
    Image image;
    *box = DecodeImage(std::as_bytes(std::span(bytes)), "x", choose, min_side,
                       &image);
    return image;
  }

 private:
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(PillowTest, EveryKindOfImageIsDecoded) {
  struct Case {
    const char* name;
    int tolerance;  // grey levels
  };
  for (const Case& c : std::vector<Case>{{"rgb.jpg", 1},
                                         {"full_chroma.jpg", 1},
                                         {"grey.jpg", 1},
                                         {"progressive.jpg", 1},
                                         {"cmyk.jpg", 1},
                                         {"plain_cmyk.jpg", 1},
                                         {"rgb.png", 0},
                                         {"grey.png", 0},
                                         {"palette.png", 0},
                                         {"bits.png", 0},
                                         {"alpha.png", 0},
                                         {"animated.png", 0},
                                         {"deep.png", 0},
                                         {"lossy.webp", 1},
                                         {"rgb.webp", 0},
                                         {"alpha.webp", 0},
                                         {"animated.webp", 0},
                                         {"rgb.tif", 0},
                                         {"lzw.tif", 0},
                                         {"deflate.tif", 0},
                                         // the decoder of another library
                                         {"jpeg.tif", 2},
                                         {"grey.tif", 0},
                                         {"bits.tif", 0},
                                         {"palette.tif", 0},
                                         {"alpha.tif", 0},
                                         {"cmyk.tif", 1},
                                         {"pages.tif", 0},
                                         {"mirrored.tif", 0},
                                         {"turned.tif", 0},
                                         {"deep.tif", 0},
                                         {"rgb.bmp", 0},
                                         {"grey.bmp", 0},
                                         {"bits.bmp", 0},
                                         {"palette.bmp", 0},
                                         {"rgb.ppm", 0},
                                         {"grey.pgm", 0},
                                         {"deep.pgm", 0},
                                         {"text.ppm", 1}}) {
    SCOPED_TRACE(c.name);
    Box box;
    const Image image = Decode(ReadFile(Path(c.name)), Whole, 1000, &box);
    const HostTensor expected = Pixels(c.name);
    EXPECT_EQ(image.size.height, expected.shape()[0]) << c.name;
    EXPECT_EQ(image.size.width, expected.shape()[1]) << c.name;
    EXPECT_LE(LargestDifference(image.rgb, expected.view().Span<uint8_t>()),
              c.tolerance)
        << c.name;
  }
}

TEST_F(PillowTest, PartsAreResizedAlike) {
  const HostTensor source = Pixels("resize");
  const std::span<const uint8_t> pixels = source.view().Span<uint8_t>();
  const Image image{
      .size = {.height = source.shape()[0], .width = source.shape()[1]},
      .rgb = {pixels.begin(), pixels.end()}};
  Resizer resizer;
  for (int i = 0; i < 6; ++i) {
    const std::string name = "resize-" + std::to_string(i);
    const HostTensor expected = Pixels(name);
    Box box;
    std::ifstream(Path(name + ".txt")) >> box.left >> box.top >> box.right >>
        box.bottom;
    std::vector<uint8_t> rgb(expected.size_bytes());
    resizer.Resize(
        image, box,
        {.height = expected.shape()[0], .width = expected.shape()[1]}, rgb);
    EXPECT_LE(LargestDifference(rgb, expected.view().Span<uint8_t>()), 1)
        << name;
  }
}

// Only the box and its surroundings are decoded; what is resized is the same.
TEST_F(PillowTest, PartOfAJpegIsThatOfTheWhole) {
  for (const char* name : {"rgb.jpg", "full_chroma.jpg", "grey.jpg",
                           "progressive.jpg", "cmyk.jpg"}) {
    const std::string bytes = ReadFile(Path(name));
    Box all;
    const Image whole = Decode(bytes, Whole, 1000, &all);
    RandomStream random(1, name);
    for (int i = 0; i < 100; ++i) {
      // at most half of the image, so that something is left out
      Box part{.left = random.Uniform(0.0, 60.0),
               .top = random.Uniform(0.0, 40.0)};
      part.right = part.left + random.Uniform(1.0, 23.0);
      part.bottom = part.top + random.Uniform(1.0, 21.0);
      Box box;
      const Image image = Decode(
          bytes, [&](const ImageSize&) { return part; }, 24, &box);
      EXPECT_LT(image.rgb.size(), whole.rgb.size());
      std::vector<uint8_t> from_part(24 * 24 * 3), from_whole(24 * 24 * 3);
      Resizer resizer;
      resizer.Resize(image, box, {24, 24}, from_part);
      resizer.Resize(whole, part, {24, 24}, from_whole);
      EXPECT_LE(LargestDifference(from_part, from_whole), 1)
          << name << ", box " << i;
    }
  }
}

// Where the transform halves the image, the mean of a part stays.
TEST_F(PillowTest, LargeBoxIsDecodedSmaller) {
  const std::string bytes = ReadFile(Path("rgb.jpg"));
  Box all, box;
  const Image whole = Decode(bytes, Whole, 1000, &all);
  const Image half = Decode(bytes, Whole, 30, &box);
  EXPECT_EQ(half.size.width, 42);
  EXPECT_EQ(half.size.height, 31);
  std::vector<uint8_t> from_half(10 * 10 * 3), from_whole(10 * 10 * 3);
  Resizer resizer;
  resizer.Resize(half, box, {10, 10}, from_half);
  resizer.Resize(whole, all, {10, 10}, from_whole);
  EXPECT_LE(LargestDifference(from_half, from_whole), 6);
}

TEST_F(PillowTest, DamagedFilesAreErrors) {
  constexpr const char* kUnknown =
      "x: not a JPEG, PNG, WebP, TIFF, BMP, PGM or PPM file";
  Box box;
  const auto message_of = [&](std::string_view bytes) {
    return MessageOf<IoError>([&] { Decode(bytes, Whole, 1000, &box); });
  };
  const std::string jpeg = ReadFile(Path("rgb.jpg"));
  const std::string png = ReadFile(Path("rgb.png"));
  EXPECT_EQ(message_of(jpeg.substr(0, jpeg.size() / 2)),
            "x: damaged JPEG: Premature end of JPEG file");
  EXPECT_EQ(message_of(png.substr(0, png.size() / 2)),
            "x: damaged PNG: the file is cut off");
  EXPECT_EQ(message_of("GIF89a"), kUnknown);
  EXPECT_EQ(message_of(""), kUnknown);
  Image image;
  EXPECT_EQ(MessageOf<IoError>([&] { DecodeJpeg({}, "x", Whole, 8, &image); }),
            "x: damaged JPEG: Empty input file");
  EXPECT_EQ(MessageOf<IoError>([&] { DecodePng({}, "x", Whole, &image); }),
            "x: damaged PNG: the file is cut off");
  std::string huge = jpeg;
  const size_t frame = huge.find("\xff\xc0");
  huge.replace(frame + 5, 4, "\xf0\x10\xf0\x10");
  EXPECT_EQ(message_of(huge),
            "x: 61456x61456 pixels; at most 100000000 in all");
}

}  // namespace
}  // namespace replicant::data
