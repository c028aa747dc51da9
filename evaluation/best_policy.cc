#include "evaluation/best_policy.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <string>
#include <system_error>
#include <vector>

#include "agents/agent_steps.h"
#include "base/error.h"
#include "engine/runtime/checkpoint.h"

namespace replicant::evaluation {
namespace {

constexpr const char* kReturnKey = "return";

std::filesystem::path FolderOf(const std::filesystem::path& run) {
  return run / "best";
}

using Kept = BestPolicy::Kept;

// The kept policies that can be read: one, or two after a crash.
std::vector<Kept> KeptIn(const std::filesystem::path& run) {
  std::vector<Kept> all;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(FolderOf(run), ignored)) {
    try {
      const auto info = runtime::ReadCheckpointInfo(entry.path());
      all.push_back({entry.path(), std::stod(info.metadata.at(kReturnKey))});
    } catch (const std::exception& error) {
      spdlog::debug("{}: {}", entry.path().string(), error.what());
    }
  }
  return all;
}

std::optional<Kept> BestOf(const std::vector<Kept>& all) {
  std::optional<Kept> best;
  for (const Kept& kept : all) {
    if (!best || kept.mean_return > best->mean_return) best = kept;
  }
  return best;
}

}  // namespace

void BestPolicy::Offer(const EvaluationRecord& record,
                       const runtime::VariableStore& policy,
                       int64_t agent_steps) {
  const std::vector<Kept> before = KeptIn(run_folder_);
  const std::optional<Kept> best = BestOf(before);
  if (std::isnan(record.mean) || (best && record.mean <= best->mean_return)) {
    return;
  }
  const std::string name = fmt::format("step-{:012}", record.step);
  std::filesystem::path path = FolderOf(run_folder_) / name;
  try {
    // a step that already exists was evaluated with other episodes
    for (int i = 2; std::filesystem::exists(path); ++i) {
      path = FolderOf(run_folder_) / fmt::format("{}-{}", name, i);
    }
    runtime::SaveCheckpoint(
        path, runtime::CopyVariables(policy),
        {.step = record.step,
         .metadata = {{kReturnKey, fmt::format("{}", record.mean)},
                      {agents::kAgentStepsKey, std::to_string(agent_steps)}}});
    for (const Kept& kept : before)
      std::filesystem::remove_all(kept.checkpoint);
  } catch (const std::exception& error) {
    spdlog::warn("the best policy was not kept: {}", error.what());
  }
}

std::optional<BestPolicy::Kept> BestPolicy::Find(
    const std::filesystem::path& run_folder) {
  return BestOf(KeptIn(run_folder));
}

}  // namespace replicant::evaluation
