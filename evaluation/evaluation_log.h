#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/metrics/curves.h"
#include "base/metrics/json_lines.h"
#include "evaluation/evaluation.h"

namespace replicant::evaluation {

// One evaluation of a run.
struct EvaluationRecord {
  // When the policy's parameters were set, in seconds since the run began,
  // without the time between a stop and a resume.
  double seconds = 0.0;
  int64_t step = 0;               // the learner's
  std::optional<int64_t> frames;  // environment frames by then, if known
  int64_t num_episodes = 0;
  // statistics of the episodes' returns
  double mean = 0.0;
  double standard_deviation = 0.0;
  double min = 0.0;
  double max = 0.0;
  double mean_length = 0.0;     // agent steps
  std::vector<double> returns;  // of each episode
};

EvaluationRecord MakeRecord(double seconds, int64_t step,
                            std::optional<int64_t> frames,
                            const EvaluationResult& result);

// Reads the evaluations of a run, oldest first, from RUN/evaluations.jsonl;
// empty without that file. Throws IoError if it cannot be read or is malformed.
std::vector<EvaluationRecord> ReadEvaluations(
    const std::filesystem::path& run_folder);

// Returns when a run that resumes now began, in seconds on Clock::Now(): the
// current time minus the time of its last evaluation, or minus
// `trained_seconds`, those of its newest checkpoint, if they are more. All
// processes of a host share that clock, and a change of the wall clock does not
// move it.
double FindBeginning(const std::filesystem::path& run_folder,
                     double trained_seconds,
                     const Clock& clock = Clock::Real());

// Writes a run's evaluations:
//
//   evaluations.jsonl   a line each: seconds, step, frames, episodes, return,
//                       return_std, return_min, return_max, length, returns
//   by_updates/evaluator, by_frames/evaluator
//                       evaluation/return, evaluation/return_std,
//                       evaluation/length and evaluation/video
//                       (metrics::Curves)
//
// Each evaluation is written immediately. Thread-safety: one thread at a time;
// one process writes a run's log.
class EvaluationLog {
 public:
  // `began_s` is the time when the run began, from FindBeginning(). `disk`
  // writes the files; null: Write() does. Throws IoError if the folder cannot
  // be written, and as ReadEvaluations().
  EvaluationLog(const std::filesystem::path& run_folder, double began_s,
                Clock* clock = &Clock::Real(), DiskQueue* disk = nullptr);

  // Seconds since the run began.
  double Now() const;

  // The learner's step of the last evaluation, by an earlier process too; empty
  // if there is none.
  std::optional<int64_t> last_step() const {
    return points_.empty() ? std::nullopt : std::optional(points_.back().step);
  }
  // Its environment frames, 0 if they are not known.
  std::optional<int64_t> last_frames() const {
    return points_.empty() ? std::nullopt
                           : std::optional(points_.back().frames);
  }
  // Removes the evaluations after `step`, because the learner has lost these
  // steps. Throws IoError if a file cannot be opened.
  void Rewind(int64_t step);
  // A record that cannot be written is dropped and counted.
  void Write(const EvaluationRecord& record);
  // Shows a video in TensorBoard, as a small animated GIF of its first seconds,
  // made by the program ffmpeg. A failure is logged.
  void AddVideo(const std::filesystem::path& video, int64_t step);

  int64_t num_dropped() const {
    return curves_.num_dropped() + lines_.num_dropped();
  }

 private:
  // one for each evaluation; Rewind() finds in them the frames of the last one
  // that stays
  std::vector<metrics::CurvePoint> points_;
  const double began_s_;
  Clock& clock_;
  metrics::Curves curves_;  // makes the folder
  metrics::JsonLinesWriter lines_;
};

}  // namespace replicant::evaluation
