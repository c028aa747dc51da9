#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actors/evaluation_log.h"

namespace replicant::programs {

// Draws the mean return of a run's evaluations over its minutes and, if they
// are known, frames, with a band of one standard deviation, into a PNG file by
// the program gnuplot. Throws IoError, with what to do, if gnuplot is not there
// or cannot draw it.
void DrawLearningCurve(const std::vector<actors::EvaluationRecord>& records,
                       const std::string& title,
                       const std::filesystem::path& file);

// Draws the curve of the run in `run_folder` there, as "curve.png", if it was
// evaluated; returns its evaluations. What goes wrong is logged.
std::vector<actors::EvaluationRecord> DrawCurveOfRun(
    const std::filesystem::path& run_folder, const std::string& title);

}  // namespace replicant::programs
