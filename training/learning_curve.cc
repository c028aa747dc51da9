#include "training/learning_curve.h"

#include <fmt/format.h>

#include <chrono>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/process.h"

namespace replicant::training {
namespace {

// A text as gnuplot's single-quoted string.
std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

// Minutes, mean and standard deviation of each evaluation.
std::string DataBlock(const std::vector<actors::EvaluationRecord>& records) {
  std::string text = "$evaluations << END\n";
  for (const actors::EvaluationRecord& record : records) {
    text += fmt::format("{} {} {}\n", record.seconds / 60.0, record.mean,
                        record.standard_deviation);
  }
  return text + "END\n";
}

}  // namespace

void DrawLearningCurve(const std::vector<actors::EvaluationRecord>& records,
                       const std::string& title,
                       const std::filesystem::path& file) {
  const TemporaryFolder folder("replicant-curve");
  const std::filesystem::path script = folder.path() / "curve.gp";
  AtomicWriteFile(
      script,
      "set terminal pngcairo size 960,540 noenhanced\n"
      "set output " +
          Quote(file.string()) + "\n" + DataBlock(records) + "set title " +
          Quote(title) +
          "\n"
          "set xlabel 'minutes'\n"
          "set ylabel 'return of the policy without noise'\n"
          "set xrange [0:*]\n"
          "set grid\n"
          "set key bottom right\n"
          "plot $evaluations using 1:($2-$3):($2+$3) with filledcurves "
          "lc rgb '#c6dbef' title 'standard deviation of the episodes', "
          "$evaluations using 1:2 with linespoints lw 2 pt 7 ps 0.6 "
          "lc rgb '#08519c' title 'mean of " +
          fmt::format("{}", records.empty() ? 0 : records.back().num_episodes) +
          " episodes'\n");
  CommandResult result;
  try {
    result = RunCommand({.command = {"gnuplot", script.string()}},
                        std::chrono::seconds(60));
  } catch (const IoError& e) {
    throw IoError(
        fmt::format("learning curve {}: {}; hint: it is drawn by the program "
                    "gnuplot, install it",
                    file.string(), e.what()));
  }
  if (!result.status.ok()) {
    throw IoError(fmt::format("learning curve {}: gnuplot ended with {}: {}",
                              file.string(), result.status.ToString(),
                              result.output));
  }
}

}  // namespace replicant::training
