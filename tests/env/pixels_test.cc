#include "env/pixels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "env/vector_environment.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using Bytes = std::vector<uint8_t>;

constexpr int kHeight = 12;
constexpr int kWidth = 16;
constexpr size_t kPixels = size_t{kHeight} * kWidth;
constexpr std::array kPush = {1.0, 0.5};

PixelOptions Small(int frame_stack) {
  return {.camera = {.camera = "-1", .height = kHeight, .width = kWidth},
          .frame_stack = frame_stack};
}

// Frame `index` of a stack of `depth`.
Bytes FrameOf(const Bytes& stack, size_t depth, size_t index) {
  Bytes frame;
  for (size_t i = 0; i < kPixels; ++i) {
    const auto* pixel = stack.data() + (i * depth + index) * 3;
    frame.insert(frame.end(), pixel, pixel + 3);
  }
  return frame;
}

class PixelsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Environment> Make(double time_limit_s = 0.1) {
    return MakeEnvironment(
        testing::DefineSmallTask(folder_, {.time_limit_s = time_limit_s}), {});
  }
  // The frame that a camera sees now.
  static Bytes Look(Environment& environment) {
    Camera camera(environment.physics(), Small(1).camera);
    Bytes rgb(camera.size_bytes());
    camera.Render(environment.mutable_physics(), rgb);
    return rgb;
  }

  TemporaryFolder folder_;
  Bytes pixels_ = Bytes(kPixels * 9);
  const ObservationBuffer out_{.pixels = pixels_};
};

TEST_F(PixelsTest, HoldsTheLastFramesOfTheEpisode) {
  Pixels environment(Make(), Small(3));
  const ArraySpec& spec = environment.observation_spec().Find("pixels");
  EXPECT_EQ(spec.shape, Shape({kHeight, kWidth, 9}));
  EXPECT_EQ(spec.dtype, DType::kU8);
  EXPECT_EQ(environment.observation_spec().state_size(), 4);

  std::vector<Bytes> frames;
  environment.Reset(out_);
  frames.push_back(Look(environment));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(FrameOf(pixels_, 3, i), frames[0]);
  // over the end of an episode, 10 steps, into the next
  for (int t = 1; t <= 13; ++t) {
    if (environment.Step(kPush, out_).IsFirst()) frames.clear();
    frames.push_back(Look(environment));
    for (size_t i = 0; i < 3; ++i) {
      const size_t back = std::min(2 - i, frames.size() - 1);
      EXPECT_EQ(FrameOf(pixels_, 3, i), frames[frames.size() - 1 - back])
          << "step " << t << ", frame " << i;
    }
  }
  EXPECT_LT(frames.size(), 5U);  // a new episode was begun
}

// Would catch a renderer that keeps the terrain of the model's file.
TEST_F(PixelsTest, ShowARandomizedHeightField) {
  const auto look = [this](double elevation, double scale) {
    TaskDefinition task = testing::DefineSmallTask(folder_);
    std::string model = testing::kSmallModel;
    model.insert(model.find("  <worldbody>"),
                 fmt::format("  <statistic extent='3' center='0 0 0'/>\n"
                             "  <asset><hfield name='hills' nrow='2' ncol='2' "
                             "size='2 2 {} 0.1' elevation='0 1 1 0'/></asset>",
                             elevation));
    model.insert(model.find("    <body"),
                 "    <geom type='hfield' hfield='hills' pos='0 0 -1'/>\n");
    AtomicWriteFile(task.model, model);
    Pixels environment(
        MakeEnvironment(task, {.randomization = {{.fields = {"hfield_size"},
                                                  .parameters = {scale, scale},
                                                  .columns = {2}}}}),
        Small(3));
    environment.Reset(out_);
    return FrameOf(pixels_, 3, 0);
  };
  EXPECT_EQ(look(2.0, 0.25), look(0.5, 1.0));
  EXPECT_NE(look(2.0, 0.25), look(2.0, 1.0));
}

// The frame comes with the stack and without, into a new episode, too.
TEST_F(PixelsTest, WritesTheNewestFrameByItself) {
  Pixels environment(Make(), Small(3));
  EXPECT_EQ(environment.observation_spec().frame_size, int64_t{kPixels} * 3);
  Bytes frame(kPixels * 3), alone(frame.size()), wrong(1);
  environment.Reset({.pixels = pixels_, .frame = frame});
  EXPECT_EQ(frame, FrameOf(pixels_, 3, 2));
  for (int t = 1; t <= 13; ++t) {
    environment.Step(kPush, {.frame = alone});
    environment.Observe({.pixels = pixels_, .frame = frame});
    EXPECT_EQ(frame, FrameOf(pixels_, 3, 2)) << "step " << t;
    EXPECT_EQ(frame, alone) << "step " << t;
  }
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { environment.Observe({.frame = wrong}); }),
            "Pixels: frame buffer has 1 elements, expected 576");
}

TEST_F(PixelsTest, WritesTheStateBesideThePixels) {
  const auto plain = Make();
  Pixels environment(Make(), Small(1));
  std::array<double, 4> state{}, expected{};
  Bytes pixels(kPixels * 3);
  plain->Reset({.state = expected});
  environment.Reset({.state = state, .pixels = pixels});
  EXPECT_EQ(state, expected);
  plain->Step(kPush, {.state = expected});
  environment.Step(kPush, {.state = state, .pixels = pixels});
  EXPECT_EQ(state, expected);
  Bytes again(pixels.size());
  environment.Observe({.pixels = again});
  EXPECT_EQ(again, pixels);
}

// Only the last of the repeated steps is seen, whichever way round; an episode
// that ends within a repeated step too.
TEST_F(PixelsTest, ActionRepeatInsideAndAroundGiveTheSameFrames) {
  Pixels inside(
      std::make_unique<ActionRepeat>(Make(0.07), 3, RewardReduction::kMean),
      Small(3));
  ActionRepeat around(std::make_unique<Pixels>(Make(0.07), Small(3)), 3,
                      RewardReduction::kMean);
  Bytes pixels(pixels_.size());
  inside.Reset(out_);
  around.Reset({.pixels = pixels});
  EXPECT_EQ(pixels, pixels_);
  for (int t = 0; t < 6; ++t) {
    const TimeStep a = inside.Step(kPush, out_);
    const TimeStep b = around.Step(kPush, {.pixels = pixels});
    EXPECT_EQ(a.step_type, b.step_type);
    EXPECT_EQ(pixels, pixels_) << "step " << t;
  }
}

TEST_F(PixelsTest, AnUnseenStartDoesNotBringBackTheLastEpisode) {
  Pixels environment(Make(), Small(3));
  environment.Reset(out_);
  environment.Step(kPush, out_);
  environment.Reset({});
  environment.Step(kPush, out_);
  const Bytes now = Look(environment);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(FrameOf(pixels_, 3, i), now);
}

TEST_F(PixelsTest, ADivergedPhysicsIsSeenInItsDefaultPose) {
  Pixels environment(Make(), Small(1));
  Bytes pixels(kPixels * 3);
  const ObservationBuffer out{.pixels = pixels};
  environment.Reset(out);
  environment.mutable_physics().mutable_data().qvel[0] = 1e20;
  const TimeStep step = environment.Step(kPush, out);
  EXPECT_TRUE(step.IsLast());
  EXPECT_EQ(step.discount, 0.0);
  EXPECT_EQ(environment.counters().divergences, 1);
  EXPECT_EQ(environment.physics().qpos()[0], 0.0);
  EXPECT_EQ(pixels, Look(environment));
}

TEST_F(PixelsTest, BadInputIsRefused) {
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              PixelOptions options = Small(1);
              options.camera.camera = "front";
              Pixels(Make(), options);
            }),
            "small-push: no camera 'front'; allowed: -1 (free)");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Pixels(Make(), Small(0)); }),
            "FrameStack: depth must be in [1, 64], got 0");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              Pixels(std::make_unique<Pixels>(Make(), Small(1)), Small(1));
            }),
            "Pixels: the environment already has pixels");

  Pixels environment(Make(), Small(1));
  Bytes pixels(kPixels * 3);
  environment.Reset({.pixels = pixels});
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              environment.Step(kPush, {.pixels = std::span(pixels).first(5)});
            }),
            "Pixels: pixels buffer has 5 elements, expected 576");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        environment.Step(std::array{std::nan(""), 0.0}, {.pixels = pixels});
      }),
      "small-push: action[0] is nan, but must be finite");
  EXPECT_EQ(environment.counters().steps, 0);
}

// Resets of the escape change the terrain, of which the renderer keeps a copy.
TEST(SuitePixelsTest, ANewTerrainIsSeen) {
  const TaskRegistry registry(SuiteTasks());
  TaskConfig config{.name = "quadruped-escape", .has_pixels = true};
  config.pixels.camera = {.height = 24, .width = 32};
  config.pixels.frame_stack = 1;
  const auto environment = MakeConfiguredEnvironment(registry, config, 1, 0);
  Bytes pixels(size_t{24} * 32 * 3);
  for (int episode = 0; episode < 2; ++episode) {
    environment->Reset({.pixels = pixels});
    Camera fresh(environment->physics(), config.pixels.camera);
    Bytes expected(pixels.size());
    fresh.Render(environment->mutable_physics(), expected);
    EXPECT_EQ(pixels, expected) << "episode " << episode;
  }
}

// The pixels of a batch over a few steps, sent in halves if `threads` > 0.
std::vector<Bytes> Film(const TaskRegistry& registry, const TaskConfig& config,
                        int threads) {
  constexpr int kBatch = 4;
  VectorEnvironment batch(
      MakeConfiguredEnvironments(registry, config, 7, 0, kBatch),
      {.threads = threads});
  Bytes pixels(
      static_cast<size_t>(kBatch * batch.observation_spec().pixels_size()));
  std::vector<TimeStep> steps(kBatch);
  Bytes newest(
      static_cast<size_t>(kBatch * batch.observation_spec().frame_size));
  const BatchBuffer out{.pixels = pixels, .frames = newest, .steps = steps};
  batch.Reset(out);
  std::vector<Bytes> film = {pixels};
  const auto size = static_cast<size_t>(batch.action_spec().size());
  for (int t = 0; t < 4; ++t) {
    const std::vector<double> actions(kBatch * size, std::sin(t + 1.0));
    if (threads == 0) {
      batch.Step(actions, out);
    } else {
      const std::vector<int> halves[] = {{0, 2}, {3, 1}};
      std::vector<int> done(kBatch);
      for (const auto& half : halves) {
        batch.Send(half, std::span(actions).first(2 * size), out);
      }
      batch.Receive(done);
    }
    film.push_back(pixels);
    film.push_back(newest);
  }
  return film;
}

TEST(SuitePixelsTest, ABatchGivesTheSameBitsForAnyNumberOfThreads) {
  const TaskRegistry registry(SuiteTasks());
  for (const char* task : {"cheetah-run", "reacher-hard"}) {
    TaskConfig config{.name = task, .action_repeat = 2, .has_pixels = true};
    config.pixels.camera = {.height = 40, .width = 50};
    const auto expected = Film(registry, config, /*threads=*/0);
    EXPECT_NE(expected[0], expected[4]);
    for (const int threads : {0, 1, 2, 3}) {
      EXPECT_EQ(Film(registry, config, threads), expected)
          << task << ", " << threads << " threads";
    }
  }
}

// Each camera's array and frame are what a task with this camera alone has.
TEST(SuitePixelsTest, SeveralCamerasAreOneArrayEach) {
  const TaskRegistry registry(SuiteTasks());
  TaskConfig both{.name = "cheetah-run", .has_pixels = true};
  both.pixels.frame_stack = 2;
  TaskConfig side = both, back = both;
  side.pixels.camera = {.camera = "side", .height = 12, .width = 16};
  back.pixels.camera = {.camera = "back", .height = 10, .width = 8};
  both.pixels.cameras = {side.pixels.camera, back.pixels.camera};
  // the last of a batch has siblings of the first one's cameras
  const auto last = [&](const TaskConfig& config) {
    return std::move(MakeConfiguredEnvironments(registry, config, /*seed=*/7,
                                                /*first_index=*/0,
                                                /*count=*/2)[1]);
  };
  const auto all = last(both), first = last(side), second = last(back);
  const ObservationSpec& spec = all->observation_spec();
  EXPECT_EQ(spec.Find("pixels/side").shape, Shape({12, 16, 6}));
  EXPECT_EQ(spec.Find("pixels/back").shape, Shape({10, 8, 6}));
  const size_t sizes[] = {12 * 16 * 6, 10 * 8 * 6};
  Bytes pixels(sizes[0] + sizes[1]), frame(pixels.size() / 2);
  Bytes expected(pixels.size()), expected_frame(frame.size());
  const auto part = [&](Bytes& bytes, size_t i, size_t divisor) {
    return std::span(bytes).subspan(i == 0 ? 0 : sizes[0] / divisor,
                                    sizes[i] / divisor);
  };
  const std::vector<double> action(6, 0.5);
  for (int t = 0; t < 4; ++t) {
    all->Step(action, {.pixels = pixels, .frame = frame});
    first->Step(action, {.pixels = part(expected, 0, 1),
                         .frame = part(expected_frame, 0, 2)});
    second->Step(action, {.pixels = part(expected, 1, 1),
                          .frame = part(expected_frame, 1, 2)});
    ASSERT_EQ(pixels, expected) << "step " << t;
    ASSERT_EQ(frame, expected_frame) << "step " << t;
  }
  both.pixels.cameras[1].camera = "side";
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { last(both); }),
            "Pixels: two arrays 'pixels/side'; want each camera once, and no "
            "array of the task with the name of a camera's");
}

}  // namespace
}  // namespace replicant::env
