#include "programs/run/mix_prior.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
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

// Those of imported steps, by the importer's file; none if it does not say.
FrameShapes ImportedFrames(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "prior.json";
  if (!std::filesystem::exists(path)) return {};
  try {
    return nlohmann::json::parse(ReadFile(path))
        .value("frame_shapes", FrameShapes());
  } catch (const nlohmann::json::exception& error) {
    throw IoError(fmt::format("{}: {}; hint: replicant data import writes it",
                              path.string(), error.what()));
  }
}

// Other pictures may have as many bytes as the run's.
void CheckFrames(const std::filesystem::path& folder,
                 const agents::TaskSpec& task) {
  const FrameShapes imported = ImportedFrames(folder);
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
                                              replay::BatchSource* acted) {
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
          .importance = config.learner.importance});
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
    CheckFrames(config.replay.prior_folder, task);
    replay::CheckPrior(config.replay.prior_folder, StepShapeOf(task));
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: {}", kKey, error.what()));
  }
}

}  // namespace replicant::programs
