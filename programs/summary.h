#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "actors/evaluation_log.h"
#include "programs/commands.h"
#include "programs/run_config.h"

namespace replicant::programs {

// What the launcher of a run knows of it when it has ended; NaN for what it
// does not.
struct RunTotals {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  // "complete", and in a few words why it ended.
  std::string status;
  std::string reason;
  // The step that the run was resumed at; 0: it was not.
  int64_t resumed_at = 0;
  // Since then.
  double wall_clock_s = 0.0;
  double frames = kUnknown;
  double updates = kUnknown;
  double samples_per_insert = kUnknown;
};

// The newest checkpoint of a run, if there is one.
std::optional<std::filesystem::path> NewestCheckpoint(
    const std::filesystem::path& run_folder);

// Says in a table of some lines what a run came to, what lies where in its
// folder and how to go on. `commands` start fleet and evaluator.
// Throws IoError if the folder cannot be read.
std::string SummaryTable(const RunConfig& config, const RunTotals& totals,
                         const std::vector<actors::EvaluationRecord>& records,
                         const std::filesystem::path& run_folder,
                         const Commands& commands);

}  // namespace replicant::programs
