#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evaluation/evaluation_log.h"

namespace replicant::programs {

// Draws the mean return of a run's evaluations, with a band of one standard
// deviation, over minutes and, if known, over frames. Writes a PNG file with
// the program gnuplot. Throws IoError with a hint if gnuplot is missing or
// fails.
void DrawLearningCurve(const std::vector<evaluation::EvaluationRecord>& records,
                       const std::string& title,
                       const std::filesystem::path& file);

// Draws the curve of the run in `run_folder` to "curve.png" in that folder,
// unless the run has no evaluations. Returns the evaluations. Problems are
// logged.
std::vector<evaluation::EvaluationRecord> DrawCurveOfRun(
    const std::filesystem::path& run_folder, const std::string& title);

// The evaluations of runs that differ only in their seed.
struct CurveOfSettings {
  std::string label;
  std::vector<std::vector<evaluation::EvaluationRecord>> runs;
};

// Draws a line for each run over minutes, with one colour per settings.
// Does nothing without evaluations. Throws what DrawLearningCurve()
// throws.
void DrawCurvesOfSettings(const std::vector<CurveOfSettings>& curves,
                          const std::filesystem::path& file);

}  // namespace replicant::programs
