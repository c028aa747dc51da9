#include "env/distractions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/images/encode_png.h"
#include "env/pixels.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr int kSide = 8;
constexpr size_t kBytes = size_t{3} * kSide * kSide;
constexpr std::array kPush = {1.0, 0.5};

// Two videos of four images, each of one grey level: 10 v + i.
class DistractionsTest : public ::testing::Test {
 protected:
  DistractionsTest() {
    for (int video = 0; video < 2; ++video) {
      for (int image = 0; image < 4; ++image) {
        const fs::path path =
            folder_.path() / fmt::format("videos/{}/{}.png", video, image);
        fs::create_directories(path.parent_path());
        const Bytes rgb(kBytes, static_cast<uint8_t>(10 * video + image));
        AtomicWriteFile(
            path, data::EncodePng({.height = kSide, .width = kSide}, rgb));
      }
    }
    config_.background = {.is_enabled = true,
                          .folder = (folder_.path() / "videos").string()};
    backgrounds_ =
        std::make_shared<const Backgrounds>(config_.background, kSide, kSide);
  }
  // The small task with a camera that looks past the mass at the sky.
  std::unique_ptr<Pixels> Make() {
    TaskDefinition task =
        testing::DefineSmallTask(folder_, {.time_limit_s = 0.2});
    std::string model = testing::kSmallModel;
    model.insert(model.find("<body"),
                 R"(<camera name="up" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>)");
    AtomicWriteFile(task.model, model);
    auto pixels = std::make_unique<Pixels>(
        MakeEnvironment(task, {}),
        PixelOptions{
            .camera = {.camera = "up", .height = kSide, .width = kSide},
            .frame_stack = 1});
    pixels->Distract(config_, backgrounds_, RandomStream(3, "distractions"));
    return pixels;
  }
  static Bytes Look(Environment& environment) {
    Bytes rgb(kBytes);
    environment.Observe({.pixels = rgb});
    return rgb;
  }
  // The level of the sky: the first pixel, far from the mass.
  static int Level(Environment& environment) { return Look(environment)[0]; }

  TemporaryFolder folder_;
  DistractionConfig config_;
  std::shared_ptr<const Backgrounds> backgrounds_;
};

TEST_F(DistractionsTest, AVideoPlaysForwardsAndBackwards) {
  const auto environment = Make();
  std::set<int> videos;
  for (int episode = 0; episode < 8; ++episode) {
    environment->Reset({});
    int before = Level(*environment);
    const int video = before / 10;
    videos.insert(video);
    std::set<int> seen = {before};
    for (int i = 0; i < 12; ++i) {
      environment->Step(kPush, {});
      const int now = Level(*environment);
      EXPECT_EQ(now / 10, video) << "one video an episode";
      EXPECT_LE(std::abs(now - before), 1);
      seen.insert(now);
      before = now;
    }
    EXPECT_EQ(seen.size(), 4U) << "all images are seen";
  }
  EXPECT_EQ(videos.size(), 2U);
}

TEST_F(DistractionsTest, AStillBackgroundStays) {
  config_.background.is_dynamic = false;
  const auto environment = Make();
  std::set<int> levels;
  for (int episode = 0; episode < 20; ++episode) {
    environment->Reset({});
    const int level = Level(*environment);
    levels.insert(level);
    for (int i = 0; i < 3; ++i) {
      environment->Step(kPush, {});
      EXPECT_EQ(Level(*environment), level);
    }
  }
  EXPECT_GT(levels.size(), 4U);
}

// Also where steps before were not drawn, and with a camera that moves.
TEST_F(DistractionsTest, ASeekRepeatsAnEpisode) {
  config_.camera = {.horizontal = 0.5,
                    .vertical = 0.5,
                    .max_velocity = 0.5,
                    .velocity_deviation = 0.1};
  const auto environment = Make(), other = Make();
  environment->Reset({});
  environment->Step(kPush, {});
  environment->Reset({});
  other->SeekEpisode(1);
  other->Reset({});
  std::set<Bytes> pictures;
  for (int i = 0; i < 5; ++i) {
    environment->Step(kPush, {});
    pictures.insert(Look(*environment));
    other->Step(kPush, {});
  }
  EXPECT_GT(pictures.size(), 3U);
  EXPECT_EQ(Look(*other), Look(*environment));
  EXPECT_EQ(Look(*other), Look(*other)) << "a second look changes nothing";
}

}  // namespace
}  // namespace replicant::env
