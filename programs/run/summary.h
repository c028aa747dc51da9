#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evaluation/evaluation_log.h"
#include "programs/run/commands.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// The totals of an ended run, as its launcher knows them; NaN for unknown
// values.
struct RunTotals {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  // "complete", and the reason for the end in a few words.
  std::string status;
  std::string reason;
  // The step from which the run was resumed; 0 for a new run.
  int64_t resumed_at = 0;
  // All values below count from that step.
  double wall_clock_s = 0.0;
  double frames = kUnknown;
  double updates = kUnknown;
  double samples_per_insert = kUnknown;
  // Scalars of the last training step, by name.
  std::vector<std::pair<std::string, double>> last_scalars = {};
  // The program and arguments that resume the run; empty: the fleet's.
  std::vector<std::string> resume_arguments = {};
};

// Returns the newest checkpoint of a run, or nothing.
std::optional<std::filesystem::path> NewestCheckpoint(
    const std::filesystem::path& run_folder);

// Returns the closing table of a run: its result, the files in its folder, and
// the commands that resume and evaluate it, made from `commands`. Throws
// IoError if the folder cannot be read.
std::string SummaryTable(
    const RunConfig& config, const RunTotals& totals,
    const std::vector<evaluation::EvaluationRecord>& records,
    const std::filesystem::path& run_folder, const Commands& commands);

}  // namespace replicant::programs
