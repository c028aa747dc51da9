#include "programs/run/find_checkpoint.h"

#include <fmt/format.h>

#include "base/error.h"
#include "evaluation/best_policy.h"
#include "evaluation/evaluation_log.h"
#include "fleet/run_folder.h"
#include "learner/checkpoint_folder.h"
#include "programs/run/summary.h"

namespace replicant::programs {

std::filesystem::path FindRun(const std::string& option,
                              const std::string& given) {
  if (!std::filesystem::exists(given)) {
    throw IoError(fmt::format("{} {}: no such folder", option, given));
  }
  auto run = std::filesystem::canonical(fleet::RunFolder::Find(given));
  if (std::filesystem::exists(run / "config.yaml")) return run;
  throw IoError(
      fmt::format("{} {}: neither the folder of a run, which has a "
                  "config.yaml, nor a checkpoint in one",
                  option, given));
}

std::filesystem::path FindCheckpoint(const std::string& option,
                                     const std::string& given,
                                     const std::string& which) {
  const bool wants_best = which == "best";
  if (!wants_best && which != WhichOption::kDefault) {
    throw ConfigError(fmt::format("{}: got '{}', want newest or best",
                                  WhichOption::kName, which));
  }
  const std::filesystem::path run = FindRun(option, given);
  std::filesystem::path path = std::filesystem::canonical(given);
  if (!std::filesystem::is_directory(path)) path = path.parent_path();
  const auto best = evaluation::BestPolicy::Find(run);
  if (path == run) {
    if (wants_best && best) return best->checkpoint;
    const auto newest = NewestCheckpoint(run);
    if (!wants_best && newest) return *newest;
    throw IoError(fmt::format(
        "{} {}: the run has no {} yet{}", option, given,
        wants_best ? "evaluated policy in best" : "checkpoint",
        best ? "; hint: the best policy is " + best->checkpoint.string() : ""));
  }
  if (std::filesystem::exists(path / "checkpoint.json")) return path;
  throw IoError(fmt::format(
      "{} {}: no checkpoint; hint: {}, or a folder step-... in its checkpoints "
      "or best",
      option, given, run.string()));
}

double BeginningOfRun(const std::filesystem::path& run_folder) {
  const auto newest =
      learner::CheckpointReader(run_folder / "checkpoints").NewestManifest();
  return evaluation::FindBeginning(run_folder, newest ? newest->seconds : 0.0);
}

}  // namespace replicant::programs
