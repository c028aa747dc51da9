#include "programs/run/learning_curve.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/format.h"
#include "base/process.h"

namespace replicant::programs {
namespace {

// A text as gnuplot's single-quoted string.
std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

// The unit of the time axis.
struct TimeUnit {
  const char* name;
  double seconds;
};

// Seconds for a run of less than a minute.
TimeUnit TimeUnitOf(const std::vector<evaluation::EvaluationRecord>& records) {
  const bool is_short = !records.empty() && records.back().seconds < 60.0;
  return is_short ? TimeUnit{"seconds", 1.0} : TimeUnit{"minutes", 60.0};
}

// Time and mean of each evaluation, and the ends of its band: a standard
// deviation from the mean, but not beyond the returns of episodes.
std::string DataBlock(const std::vector<evaluation::EvaluationRecord>& records,
                      const TimeUnit& unit) {
  std::string text = "$evaluations << END\n";
  for (const evaluation::EvaluationRecord& record : records) {
    text += fmt::format(
        "{} {} {} {}\n", record.seconds / unit.seconds, record.mean,
        std::max(record.mean - record.standard_deviation, record.min),
        std::min(record.mean + record.standard_deviation, record.max));
  }
  return text + "END\n";
}

// Seconds after which the run had made so many frames, between evaluations.
double SecondsAt(const std::vector<evaluation::EvaluationRecord>& records,
                 double frames) {
  double earlier_frames = 0.0;
  double earlier_s = 0.0;
  for (const evaluation::EvaluationRecord& record : records) {
    const auto now = static_cast<double>(record.frames.value_or(0));
    if (now >= frames) {
      const double share = (frames - earlier_frames) / (now - earlier_frames);
      return earlier_s + share * (record.seconds - earlier_s);
    }
    earlier_frames = now;
    earlier_s = record.seconds;
  }
  return earlier_s;
}

// A second axis with round numbers of frames where they were reached; empty if
// frames are not known.
std::string FrameAxis(const std::vector<evaluation::EvaluationRecord>& records,
                      const TimeUnit& unit) {
  double last = 0.0;
  for (const evaluation::EvaluationRecord& record : records) {
    last = std::max(last, static_cast<double>(record.frames.value_or(0)));
  }
  if (last < 1.0) return "";
  // a step of 1, 2 or 5 times a power of ten, at most eight of them
  double step = 1.0;
  for (int i = 1; last / step > 8.0; ++i) step *= i % 3 == 2 ? 2.5 : 2.0;
  std::string tics;
  for (int i = 1; i * step <= last; ++i) {
    const double frames = i * step;
    tics += fmt::format("{}'{}' {}", tics.empty() ? "" : ", ",
                        metrics::FormatQuantity(frames),
                        SecondsAt(records, frames) / unit.seconds);
  }
  return "set xtics nomirror\nset link x2\nset x2label 'frames'\nset x2tics (" +
         tics + ")\n";
}

// Draws `commands` of gnuplot into a PNG file.
void Draw(const std::string& commands, const std::filesystem::path& file) {
  const TemporaryFolder folder("replicant-curve");
  const std::filesystem::path script = folder.path() / "curve.gp";
  // gnuplot makes its output before it fails, and ends well on a full disk
  const std::filesystem::path drawn = folder.path() / "curve.png";
  AtomicWriteFile(script,
                  "set terminal pngcairo size 960,540 noenhanced\nset output " +
                      Quote(drawn.string()) + "\n" + commands);
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
  try {
    AtomicWriteFile(file, ReadFile(drawn));
  } catch (const IoError& e) {
    throw IoError(
        fmt::format("learning curve {}: {}", file.string(), e.what()));
  }
}

}  // namespace

void DrawLearningCurve(const std::vector<evaluation::EvaluationRecord>& records,
                       const std::string& title,
                       const std::filesystem::path& file) {
  const TimeUnit unit = TimeUnitOf(records);
  Draw(
      DataBlock(records, unit) + "set title " + Quote(title) +
          " offset 0,0.5\n"
          "set xlabel '" +
          unit.name +
          "'\n"
          "set ylabel 'return of the policy without noise'\n"
          "set xrange [0:*]\n"
          "set grid\n" +
          FrameAxis(records, unit) +
          "set key bottom right\n"
          "plot $evaluations using 1:3:4 with filledcurves "
          "lc rgb '#c6dbef' title 'standard deviation of the episodes', "
          "$evaluations using 1:2 with linespoints lw 2 pt 7 ps 0.6 "
          "lc rgb '#08519c' title 'mean of " +
          fmt::format("{}", records.empty() ? 0 : records.back().num_episodes) +
          " episodes'\n",
      file);
}

void DrawCurvesOfSettings(const std::vector<CurveOfSettings>& curves,
                          const std::filesystem::path& file) {
  std::string data;
  std::string lines;
  int number = 0;
  for (size_t color = 0; color < curves.size(); ++color) {
    const CurveOfSettings& curve = curves[color];
    for (size_t i = 0; i < curve.runs.size(); ++i) {
      data += fmt::format("$run{} << END\n", number);
      for (const evaluation::EvaluationRecord& record : curve.runs[i]) {
        data += fmt::format("{} {}\n", record.seconds / 60.0, record.mean);
      }
      data += "END\n";
      lines += fmt::format("{}$run{} using 1:2 with lines lw 2 lc {} {}",
                           lines.empty() ? "" : ", ", number, color + 1,
                           i == 0 ? "title " + Quote(curve.label) : "notitle");
      ++number;
    }
  }
  if (number == 0) return;
  Draw(data +
           "set xlabel 'minutes'\n"
           "set ylabel 'return of the policy without noise'\n"
           "set xrange [0:*]\nset grid\nset key outside below\nplot " +
           lines + "\n",
       file);
}

std::vector<evaluation::EvaluationRecord> DrawCurveOfRun(
    const std::filesystem::path& run_folder, const std::string& title) {
  std::vector<evaluation::EvaluationRecord> evaluations;
  try {
    evaluations = evaluation::ReadEvaluations(run_folder);
    if (!evaluations.empty()) {
      DrawLearningCurve(evaluations, title, run_folder / "curve.png");
    }
  } catch (const IoError& e) {
    spdlog::warn("{}", e.what());
  }
  return evaluations;
}

}  // namespace replicant::programs
