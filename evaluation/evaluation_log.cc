#include "evaluation/evaluation_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"

namespace replicant::evaluation {
namespace {

constexpr const char* kFileName = "evaluations.jsonl";
// The GIF of a video: small, since an event file keeps every GIF.
constexpr const char* kGifSeconds = "10";
constexpr const char* kGifFilter = "fps=10,scale=160:-2";
constexpr uint64_t kMaxGifBytes = uint64_t{8} << 20;
constexpr auto kGifPatience = std::chrono::seconds(30);

// A number, also one that JSON lacks (base/metrics/json_lines.h).
double NumberOf(const nlohmann::json& value) {
  return value.is_string() ? std::stod(value.get<std::string>())
                           : value.get<double>();
}
double ReadNumber(const nlohmann::json& line, const char* key) {
  return NumberOf(line.at(key));
}

EvaluationRecord ParseLine(const nlohmann::json& line) {
  EvaluationRecord record;
  record.seconds = ReadNumber(line, "seconds");
  record.step = line.at("step").get<int64_t>();
  if (line.contains("frames")) record.frames = line["frames"].get<int64_t>();
  record.num_episodes = line.at("episodes").get<int64_t>();
  record.mean = ReadNumber(line, "return");
  record.standard_deviation = ReadNumber(line, "return_std");
  record.min = ReadNumber(line, "return_min");
  record.max = ReadNumber(line, "return_max");
  record.mean_length = ReadNumber(line, "length");
  if (line.contains("returns")) {
    for (const nlohmann::json& value : line["returns"]) {
      record.returns.push_back(NumberOf(value));
    }
  }
  return record;
}

metrics::CurvePoint PointOf(const EvaluationRecord& record) {
  return {.step = record.step, .frames = record.frames.value_or(0)};
}

double SteadySeconds(const Clock& clock) {
  return ToSeconds(clock.Now().time_since_epoch());
}

}  // namespace

EvaluationRecord MakeRecord(double seconds, int64_t step,
                            std::optional<int64_t> frames,
                            const EvaluationResult& result) {
  return {.seconds = seconds,
          .step = step,
          .frames = frames,
          .num_episodes = static_cast<int64_t>(result.returns.size()),
          .mean = result.Mean(),
          .standard_deviation = result.StandardDeviation(),
          .min = result.Min(),
          .max = result.Max(),
          .mean_length = result.MeanLength(),
          .returns = result.returns};
}

std::vector<EvaluationRecord> ReadEvaluations(
    const std::filesystem::path& run_folder) {
  const std::filesystem::path path = run_folder / kFileName;
  std::vector<EvaluationRecord> records;
  // reading a device might never end
  if (!std::filesystem::is_regular_file(path)) return records;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError::FromErrno("cannot open", path, errno);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    // a crash may leave a last line without newline
    if (file.eof()) break;
    try {
      records.push_back(ParseLine(nlohmann::json::parse(line)));
    } catch (const std::exception& e) {
      throw IoError(fmt::format(
          "{}:{}: not an evaluation record: {}; hint: remove the line",
          path.string(), number, e.what()));
    }
  }
  if (file.bad()) throw IoError::FromErrno("cannot read", path, errno);
  return records;
}

double FindBeginning(const std::filesystem::path& run_folder,
                     double trained_seconds, const Clock& clock) {
  const std::vector<EvaluationRecord> records = ReadEvaluations(run_folder);
  return SteadySeconds(clock) -
         std::max(trained_seconds,
                  records.empty() ? 0.0 : records.back().seconds);
}

EvaluationLog::EvaluationLog(const std::filesystem::path& run_folder,
                             double began_s, Clock* clock, DiskQueue* disk)
    : began_s_(began_s),
      clock_(*clock),
      curves_("evaluator",
              {.folder = run_folder,
               .flush_interval = Clock::Duration::zero(),
               .disk = disk},
              *clock),
      lines_({.path = run_folder / kFileName,
              .flush_interval = Clock::Duration::zero(),
              .disk = disk},
             *clock) {
  for (const EvaluationRecord& record : ReadEvaluations(run_folder)) {
    points_.push_back(PointOf(record));
  }
}

double EvaluationLog::Now() const {
  // rounded to milliseconds for human readers
  return std::round(1e3 * (SteadySeconds(clock_) - began_s_)) / 1e3;
}

void EvaluationLog::Write(const EvaluationRecord& record) {
  metrics::JsonObject line;
  line.Add("seconds", record.seconds).Add("step", record.step);
  if (record.frames) line.Add("frames", *record.frames);
  line.Add("episodes", record.num_episodes)
      .Add("return", record.mean)
      .Add("return_std", record.standard_deviation)
      .Add("return_min", record.min)
      .Add("return_max", record.max)
      .Add("length", record.mean_length)
      .Add("returns", std::span<const double>(record.returns));
  lines_.Write(line);
  const metrics::CurvePoint at = PointOf(record);
  points_.push_back(at);
  curves_.AddScalar("evaluation/return", record.mean, at);
  curves_.AddScalar("evaluation/return_std", record.standard_deviation, at);
  curves_.AddScalar("evaluation/length", record.mean_length, at);
}

void EvaluationLog::Rewind(int64_t step) {
  std::erase_if(points_, [step](const metrics::CurvePoint& point) {
    return point.step > step;
  });
  int64_t frames = 0;
  for (const metrics::CurvePoint& point : points_) {
    frames = std::max(frames, point.frames);
  }
  curves_.Rewind(step, frames);
  lines_.Rewind(step);
}

void EvaluationLog::AddVideo(const std::filesystem::path& video, int64_t step) {
  try {
    const TemporaryFolder folder;
    const std::filesystem::path gif = folder.path() / "video.gif";
    const CommandResult result = RunCommand(
        {.command = {"ffmpeg", "-v", "error", "-i", video.string(), "-t",
                     kGifSeconds, "-vf", kGifFilter, gif.string()}},
        kGifPatience);
    if (!result.status.ok()) throw IoError(result.output);
    const std::string bytes = ReadFile(gif, kMaxGifBytes);
    // a GIF begins with six letters, its width and its height
    const auto number = [&bytes](size_t at) {
      return static_cast<int>(static_cast<uint8_t>(bytes.at(at))) +
             256 * static_cast<int>(static_cast<uint8_t>(bytes.at(at + 1)));
    };
    curves_.by_updates().AddImage("evaluation/video", number(8), number(6),
                                  bytes, step);
  } catch (const std::exception& error) {
    spdlog::warn("no video for TensorBoard: {}", error.what());
  }
}

}  // namespace replicant::evaluation
