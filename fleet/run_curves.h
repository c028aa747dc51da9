#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/metrics/curves.h"
#include "base/metrics/json_lines.h"
#include "base/metrics/rate_meter.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/status.h"

namespace replicant::fleet {

// One curve of a run, made from the numbers of its roles' heartbeats.
struct CurveField {
  enum class Kind {
    kMean,  // over the processes of the role
    kSum,
    kRate,  // growth of the sum per second
    // rate of each process, as "TAG/ROLE-INDEX"; none for a role of more than
    // RunCurves::kMaxRatesOfEach
    kRateOfEach,
    kBehindSteps,  // the newest update that any process knows minus the mean
  };

  Kind kind = Kind::kMean;
  std::string tag;  // "actors/return"
  std::string role;
  std::string number;
};

// The numbers on the axes of a run's curves.
struct CurveAxis {
  std::string role;    // "learner"
  std::string steps;   // gauge of its updates
  std::string frames;  // gauge of the environment frames behind them
};

// Writes curves from heartbeats, every few seconds, into the folder of a run:
//
//   fleet.jsonl   one line each time; the keys are the tags
//   by_updates/fleet, by_frames/fleet
//                 the same for TensorBoard (metrics::Curves)
//
// When the learner falls back to an earlier checkpoint, the points of the steps
// that it has lost are removed.
//
// `disk` writes the files. Points that cannot be written are dropped
// (metrics::AppendFile). If a file cannot be opened, there are no curves, and
// the log says so.
//
// Thread-safety: one thread.
class RunCurves {
 public:
  // A line of fleet.jsonl stays short, in a fleet of any size.
  static constexpr int64_t kMaxRatesOfEach = 1000;

  RunCurves(const std::filesystem::path& folder, CurveAxis axis,
            std::vector<CurveField> fields, DiskQueue* disk = nullptr,
            Clock* clock = &Clock::Real());

  // Writes a point now, if the learner has reported its step.
  void Add(const FleetStatus& status, const HeartbeatMonitor& monitor);
  // Writes a point if an interval has passed since the last.
  void Update(const FleetStatus& status, const HeartbeatMonitor& monitor);
  void Flush();

 private:
  // Values by tag; omits values that no role has reported.
  std::map<std::string, double> ValuesOf(const FleetStatus& status,
                                         const HeartbeatMonitor& monitor,
                                         double step);
  double RateOf(const std::string& tag, double total);
  void Write(const std::map<std::string, double>& values,
             const metrics::CurvePoint& at);
  // Removes the points from `at` on, if they are not all earlier.
  void RewindIfLost(const metrics::CurvePoint& at);

  const CurveAxis axis_;
  const std::vector<CurveField> fields_;
  Clock& clock_;
  Clock::TimePoint next_;
  metrics::CurvePoint last_;
  std::map<std::string, metrics::RateMeter> meters_;  // by tag
  // empty if a file cannot be opened
  std::optional<metrics::Curves> curves_;
  std::optional<metrics::JsonLinesWriter> lines_;
};

}  // namespace replicant::fleet
