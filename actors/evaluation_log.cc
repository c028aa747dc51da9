#include "actors/evaluation_log.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "core/base/fs.h"

namespace replicant::actors {
namespace {

constexpr const char* kFileName = "evaluations.jsonl";
// a line is some 200 bytes
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;

// A number, also one that JSON lacks (core/metrics/json_lines.h).
double ReadNumber(const nlohmann::json& line, const char* key) {
  const nlohmann::json& value = line.at(key);
  return value.is_string() ? std::stod(value.get<std::string>())
                           : value.get<double>();
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
  return record;
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
          .mean_length = result.MeanLength()};
}

std::vector<EvaluationRecord> ReadEvaluations(
    const std::filesystem::path& run_folder) {
  const std::filesystem::path path = run_folder / kFileName;
  std::vector<EvaluationRecord> records;
  if (!std::filesystem::exists(path)) return records;
  std::istringstream text(ReadFile(path, kMaxFileBytes));
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    // a last line without newline is what a crash left of it
    if (text.eof()) break;
    try {
      records.push_back(ParseLine(nlohmann::json::parse(line)));
    } catch (const std::exception& e) {
      throw IoError(fmt::format("{}:{}: not an evaluation record: {}",
                                path.string(), number, e.what()));
    }
  }
  return records;
}

double FindBeginning(const std::filesystem::path& run_folder,
                     const Clock& clock) {
  const std::vector<EvaluationRecord> records = ReadEvaluations(run_folder);
  return SteadySeconds(clock) -
         (records.empty() ? 0.0 : records.back().seconds);
}

EvaluationLog::EvaluationLog(const std::filesystem::path& run_folder,
                             double began_s, Clock* clock, DiskQueue* disk)
    : began_s_(began_s),
      clock_(*clock),
      events_({.folder = run_folder,
               .flush_interval = Clock::Duration::zero(),
               .disk = disk},
              *clock),
      lines_({.path = run_folder / kFileName,
              .flush_interval = Clock::Duration::zero(),
              .disk = disk},
             *clock) {}

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
      .Add("length", record.mean_length);
  lines_.Write(line);
  events_.AddScalar("evaluation/return", record.mean, record.step);
  events_.AddScalar("evaluation/return_std", record.standard_deviation,
                    record.step);
  events_.AddScalar("evaluation/length", record.mean_length, record.step);
}

}  // namespace replicant::actors
