// Measures what the distractions, randomizations and disturbances of recipes
// cost in a step of their environments; one JSON line per recipe, task and
// size. Environments with and without them make the same steps in turns.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config/document.h"
#include "base/config/reader.h"
#include "base/crc32c.h"
#include "base/fs.h"
#include "base/images/encode_png.h"
#include "base/log.h"
#include "base/metrics/json_lines.h"
#include "base/rng.h"
#include "bench/programs/process_cost.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "env/vector_environment.h"

namespace replicant::env {
namespace {

namespace fs = std::filesystem;

constexpr int kEnvironments = 16;
constexpr size_t kActionRows = 64;
// DAVIS 2017's at 480p
constexpr int kVideoHeight = 480, kVideoWidth = 854;
constexpr int kVideos = 4, kVideoImages = 12;

struct Options {
  std::vector<std::string> recipes;
  std::vector<std::string> tasks = {"walker-walk", "cheetah-run",
                                    "cartpole-swingup"};
  std::vector<int> sides = {84, 64};
  int rounds = 9;
  double seconds = 0.2;  // of a turn
};

// As `--config FILE --set task.distractions.background.folder=FOLDER`.
TaskConfig ReadTask(const std::string& recipe, const fs::path& videos) {
  config::Reader reader(config::Document::FromFile(
      recipe, {"task.distractions.background.folder=" + videos.string()}));
  TaskConfig config;
  reader.Section("task", &config, "the environment");
  return config;
}

// Coarse noise, whose sky differs from picture to picture.
void WriteVideos(const fs::path& folder) {
  std::vector<uint8_t> rgb(size_t{3} * kVideoHeight * kVideoWidth);
  for (int video = 0; video < kVideos; ++video) {
    for (int image = 0; image < kVideoImages; ++image) {
      RandomStream random(0, fmt::format("video-{}-{}", video, image));
      for (size_t i = 0; i < rgb.size(); ++i) {
        rgb[i] =
            i < 64 ? static_cast<uint8_t>(random.UniformInt(256)) : rgb[i - 64];
      }
      const fs::path file = folder / fmt::format("{}/{:02}.png", video, image);
      MakeFolders(file.parent_path());
      AtomicWriteFile(
          file,
          data::EncodePng({.height = kVideoHeight, .width = kVideoWidth}, rgb));
    }
  }
}

// Environments that repeat rows of random actions.
class Steps {
 public:
  Steps(const TaskRegistry& registry, const TaskConfig& config)
      : batch_(MakeConfiguredEnvironments(registry, config, /*seed=*/0,
                                          /*first_index=*/0, kEnvironments),
               {}),
        state_(config.has_pixels
                   ? 0
                   : kEnvironments *
                         static_cast<size_t>(
                             batch_.observation_spec().state_size())),
        pixels_(kEnvironments *
                static_cast<size_t>(batch_.observation_spec().pixels_size())),
        steps_(kEnvironments),
        out_({.state = state_, .pixels = pixels_, .steps = steps_}) {
    RandomStream random(/*seed=*/0, "bench-actions");
    const ActionSpec& spec = batch_.action_spec();
    const size_t size = spec.minimum.size();
    actions_.resize(kActionRows * kEnvironments * size);
    for (size_t row = 0; row < kActionRows * kEnvironments; ++row) {
      DrawAction(spec, random, std::span(actions_).subspan(row * size, size));
    }
    Reset();
  }

  void Reset() { batch_.Reset(out_); }
  void Step() {
    const size_t size = actions_.size() / kActionRows;
    batch_.Step(std::span(actions_).subspan(row_ * size, size), out_);
    row_ = (row_ + 1) % kActionRows;
  }
  // Of the newest observations.
  uint32_t Checksum() const {
    return Crc32c(std::as_bytes(std::span(pixels_)),
                  Crc32c(std::as_bytes(std::span(state_))));
  }
  Physics& physics() { return batch_.environment(0).mutable_physics(); }

 private:
  VectorEnvironment batch_;
  std::vector<double> state_;
  std::vector<uint8_t> pixels_;
  std::vector<TimeStep> steps_;
  const BatchBuffer out_;
  std::vector<double> actions_;
  size_t row_ = 0;
};

// Processor microseconds of one of `per_call` parts of a call, over about
// `seconds`.
template <typename Call>
double Time(double seconds, int per_call, const Call& call) {
  const double start = ProcessorSeconds();
  int64_t calls = 0;
  double now = start;
  for (; now - start < seconds; now = ProcessorSeconds()) {
    for (int i = 0; i < 8; ++i) call();
    calls += 8;
  }
  return 1e6 * (now - start) / static_cast<double>(calls * per_call);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Of the draws of a step: the walk of the camera and the choice of an image.
double TimeDraws(const TaskConfig& config, Physics& physics, double seconds) {
  if (!config.distractions.IsAny()) return 0.0;
  const CameraOptions camera = config.pixels.Cameras()[0];
  std::shared_ptr<const Backgrounds> backgrounds;
  if (config.distractions.background.is_enabled) {
    backgrounds = std::make_shared<const Backgrounds>(
        config.distractions.background, camera.height, camera.width);
  }
  Distractions distractions(config.distractions, backgrounds, physics,
                            {FindCamera(physics, camera.camera)},
                            RandomStream(0, "bench"));
  distractions.Begin(physics, 0);
  const auto draw = [&] {
    distractions.Step();
    static_cast<void>(
        distractions.View(0, physics, camera.height, camera.width));
  };
  for (int i = 0; i < 2 * kVideoImages; ++i) draw();  // decoded
  return Time(seconds, 1, draw);
}

void RunCase(const Options& options, const TaskRegistry& registry,
             const std::string& recipe, const TaskConfig& config, int side) {
  TaskConfig with = config;
  with.pixels.camera.height = side;
  with.pixels.camera.width = side;
  with.pixels.camera.renderer.kind = RendererKind::kRaycast;
  TaskConfig plain = with;
  plain.randomization.clear();
  plain.disturbances = {};
  plain.distractions = {};
  Steps steps_with(registry, with), steps_plain(registry, plain);
  const auto step_with = [&] { steps_with.Step(); };
  const auto step_plain = [&] { steps_plain.Step(); };
  // caches are warm, and images decoded
  for (int i = 0; i < 4 * kVideos; ++i) steps_with.Reset();
  uint32_t checksum = 0;
  for (int i = 0; i < 2 * kVideoImages; ++i) {
    step_with();
    checksum ^= steps_with.Checksum();
  }
  std::vector<double> of_with, of_plain, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    of_with.push_back(Time(options.seconds, kEnvironments, step_with));
    of_plain.push_back(Time(options.seconds, kEnvironments, step_plain));
    ratios.push_back(of_with.back() / of_plain.back());
  }
  const double resets =
      Time(options.seconds, kEnvironments, [&] { steps_with.Reset(); }) -
      Time(options.seconds, kEnvironments, [&] { steps_plain.Reset(); });
  metrics::JsonObject line;
  line.Add("recipe", recipe)
      .Add("task", with.name)
      .Add("side", side)
      .Add("plain_us", Median(of_plain))
      .Add("with_us", Median(of_with))
      .Add("ratio", Median(ratios))
      .Add("smallest", *std::ranges::min_element(ratios))
      .Add("largest", *std::ranges::max_element(ratios))
      .Add("draws_us", TimeDraws(with, steps_with.physics(), options.seconds))
      .Add("more_per_reset_us", resets)
      .Add("checksum", fmt::format("{:08x}", checksum));
  fmt::print("{}\n", line.ToString());
  std::fflush(stdout);
}

void RunAll(const Options& options) {
  const TemporaryFolder videos;
  WriteVideos(videos.path());
  const TaskRegistry registry(SuiteTasks());
  for (const std::string& recipe : options.recipes) {
    TaskConfig config = ReadTask(recipe, videos.path());
    auto& background = config.distractions.background;
    background.num_videos = std::min<int64_t>(background.num_videos, kVideos);
    const std::vector<int> sides =
        config.has_pixels ? options.sides : std::vector{0};
    for (const std::string& task : options.tasks) {
      config.name = task;
      config.action_repeat = 2;
      for (const int side : sides) {
        RunCase(options, registry, fs::path(recipe).stem(), config, side);
      }
    }
  }
}

}  // namespace
}  // namespace replicant::env

int main(int argc, char** argv) {
  try {
    replicant::env::Options options;
    CLI::App app("Measures what a recipe's distractions cost.",
                 "bench_distractions");
    app.add_option("recipes", options.recipes, "files with a section task")
        ->required();
    app.add_option("--tasks", options.tasks, "default: three of the suite")
        ->delimiter(',');
    app.add_option("--sides", options.sides, "of pictures, default 84,64")
        ->delimiter(',');
    app.add_option("--rounds", options.rounds, "of two turns, default 9")
        ->check(CLI::Range(1, 1000));
    app.add_option("--seconds", options.seconds,
                   "processor time of a turn, default 0.2")
        ->check(CLI::Range(0.001, 3600.0));
    CLI11_PARSE(app, argc, argv);
    replicant::InitLogging({.role = "bench_distractions"});
    replicant::env::RunAll(options);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_distractions: %s\n", e.what());
    return 1;
  }
}
