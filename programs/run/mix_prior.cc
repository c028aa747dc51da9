#include "programs/run/mix_prior.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/rng.h"
#include "programs/run/step_shape.h"
#include "replay/prior/prior_replay.h"

namespace replicant::programs {
namespace {

constexpr const char* kKey = "replay.prior.folder";

int64_t PriorRows(const learner::LearnerConfig& learner) {
  return std::max<int64_t>(
      1, std::llround(learner.batch_shares.prior *
                      static_cast<double>(learner.batch_size)));
}

// [H, W, C] of each picture of a step.
using FrameShapes = std::vector<std::vector<int64_t>>;

// What the importer's file says of imported steps; empty where it does not.
struct Imported {
  FrameShapes frames;
  std::vector<double> action_low;
  std::vector<double> action_high;
};

Imported ReadImported(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "prior.json";
  if (!std::filesystem::exists(path)) return {};
  try {
    const auto file = nlohmann::json::parse(ReadFile(path));
    return {.frames = file.value("frame_shapes", FrameShapes()),
            .action_low = file.value("action_low", std::vector<double>()),
            .action_high = file.value("action_high", std::vector<double>())};
  } catch (const nlohmann::json::exception& error) {
    throw IoError(fmt::format("{}: {}; hint: replicant data import writes it",
                              path.string(), error.what()));
  }
}

// Other pictures may have as many bytes as the run's.
void CheckFrames(const std::filesystem::path& folder,
                 const FrameShapes& imported, const agents::TaskSpec& task) {
  if (imported.empty() || !task.has_pixels) return;
  FrameShapes wanted;
  for (const agents::ImageSpec& image : task.AllImages()) {
    wanted.push_back(
        {image.shape[0], image.shape[1], image.shape[2] / task.frame_stack});
  }
  if (imported == wanted) return;
  throw InvalidArgument(fmt::format(
      "{}: its pictures are {}; the run's are {}; hint: task.pixels.height and "
      "task.pixels.width, or pictures of that size",
      folder.string(), fmt::join(imported, ", "), fmt::join(wanted, ", ")));
}

// Stored actions are in [-1, 1]: with other bounds they mean others here.
// Another number of them is found by the size of a step.
void CheckActions(const std::filesystem::path& folder, const Imported& imported,
                  const agents::TaskSpec& task) {
  if (imported.action_low.size() != task.action_minimum.size() ||
      imported.action_high.size() != task.action_maximum.size()) {
    return;
  }
  bool are_same = true;
  for (size_t i = 0; i < task.action_minimum.size(); ++i) {
    const double low = task.action_minimum[i];
    const double high = task.action_maximum[i];
    // of an environment's float32 numbers
    const double rounding = 1e-4 * (high - low);
    are_same = are_same && std::abs(imported.action_low[i] - low) <= rounding &&
               std::abs(imported.action_high[i] - high) <= rounding;
  }
  if (are_same) return;
  throw InvalidArgument(fmt::format(
      "{}: its actions are from {} to {}; the run's are from {} to {}; hint: "
      "action_low and action_high in the mapping of replicant data import",
      folder.string(), imported.action_low, imported.action_high,
      task.action_minimum, task.action_maximum));
}

}  // namespace

bool HasPrior(const RunConfig& config) {
  return !config.replay.prior_folder.empty();
}

int64_t ActedRows(const RunConfig& config) {
  if (!HasPrior(config)) return config.learner.batch_size;
  return std::max<int64_t>(
      1, config.learner.batch_size - PriorRows(config.learner));
}

std::unique_ptr<replay::MixedSource> MixPrior(const RunConfig& config,
                                              const agents::TaskSpec& task,
                                              replay::BatchSource* acted,
                                              DiskQueue* disk) {
  if (!HasPrior(config)) return nullptr;
  replay::PriorOptions options{
      .folder = config.replay.prior_folder,
      .shape = StepShapeOf(task),
      .table = config.sampled_table(),
      .seed = MemberSeed(static_cast<uint64_t>(config.run.seed), "prior", 0)};
  options.table.n_step.stack = task.frame_stack;
  std::unique_ptr<replay::PriorReplay> prior;
  try {
    prior = std::make_unique<replay::PriorReplay>(options);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: {}", kKey, error.what()));
  }
  return std::make_unique<replay::MixedSource>(
      acted, std::move(prior),
      replay::MixedSourceOptions{
          .batch_size = config.learner.batch_size,
          .prior_rows = PriorRows(config.learner),
          .offline_batches = config.learner.offline_updates,
          .importance = config.learner.importance,
          .disk = disk});
}

void CheckPrior(const RunConfig& config, const agents::TaskSpec& task) {
  if (!HasPrior(config)) return;
  if (config.learner.replication.strategy->has_servers) {
    throw ConfigError(fmt::format(
        "{}: the workers of learner.replication.strategy parameter_server draw "
        "their own batches, and prior data is held by one process; allowed: "
        "another strategy",
        kKey));
  }
  try {
    const Imported imported = ReadImported(config.replay.prior_folder);
    CheckFrames(config.replay.prior_folder, imported.frames, task);
    CheckActions(config.replay.prior_folder, imported, task);
    replay::CheckPrior(config.replay.prior_folder, StepShapeOf(task));
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: {}", kKey, error.what()));
  }
}

}  // namespace replicant::programs
