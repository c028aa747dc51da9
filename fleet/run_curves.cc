#include "fleet/run_curves.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace replicant::fleet {
namespace {

using Kind = CurveField::Kind;

constexpr auto kInterval = std::chrono::seconds(5);
// Rates are measured over this time.
constexpr auto kCurveRateWindow = std::chrono::seconds(10);

// Entries of the processes of `role`.
int64_t CountOf(const std::vector<HeartbeatMonitor::Entry>& entries,
                const std::string& role) {
  return std::ranges::count_if(entries,
                               [&role](const HeartbeatMonitor::Entry& entry) {
                                 return entry.beat.id.role == role;
                               });
}

}  // namespace

RunCurves::RunCurves(const std::filesystem::path& folder, CurveAxis axis,
                     std::vector<CurveField> fields, DiskQueue* disk,
                     Clock* clock)
    : axis_(std::move(axis)),
      fields_(std::move(fields)),
      clock_(*clock),
      next_(clock->Now() + kInterval) {
  if (fields_.empty()) return;
  try {
    curves_.emplace("fleet",
                    metrics::EventWriterOptions{.folder = folder, .disk = disk},
                    *clock);
    lines_.emplace(
        metrics::JsonLinesOptions{.path = folder / "fleet.jsonl", .disk = disk},
        *clock);
  } catch (const Error& error) {
    spdlog::warn("no curves for actors and replay: {}", error.what());
    curves_.reset();
    lines_.reset();
  }
}

void RunCurves::Update(const FleetStatus& status,
                       const HeartbeatMonitor& monitor) {
  const Clock::TimePoint now = clock_.Now();
  if (now < next_) return;
  next_ = now + kInterval;
  Add(status, monitor);
}

void RunCurves::Add(const FleetStatus& status,
                    const HeartbeatMonitor& monitor) {
  if (!lines_) return;
  const double step = status.Last(axis_.role, axis_.steps);
  const double frames = status.Last(axis_.role, axis_.frames);
  if (std::isnan(step)) return;
  const metrics::CurvePoint at{
      .step = static_cast<int64_t>(step),
      .frames = std::isnan(frames) ? 0 : static_cast<int64_t>(frames)};
  RewindIfLost(at);
  Write(ValuesOf(status, monitor, step), at);
}

void RunCurves::Flush() {
  if (!lines_) return;
  curves_->Flush();
  lines_->Flush();
}

void RunCurves::RewindIfLost(const metrics::CurvePoint& at) {
  // a learner that has just restarted has not reported its frames yet
  const bool has_frames = at.frames > 0;
  if (at.step < last_.step || (has_frames && at.frames < last_.frames)) {
    try {
      curves_->Rewind(at.step - 1,
                      has_frames ? std::optional(at.frames - 1) : std::nullopt);
      lines_->Rewind(at.step - 1);
    } catch (const Error& error) {
      spdlog::warn("the curves have points of lost steps: {}", error.what());
    }
  }
  last_.step = at.step;
  if (has_frames) last_.frames = at.frames;
}

std::map<std::string, double> RunCurves::ValuesOf(
    const FleetStatus& status, const HeartbeatMonitor& monitor, double step) {
  std::map<std::string, double> values;
  for (const CurveField& field : fields_) {
    double value = NAN;
    switch (field.kind) {
      case Kind::kMean:
        value = status.Mean(field.role, field.number);
        break;
      case Kind::kSum:
        value = status.Sum(field.role, field.number);
        break;
      case Kind::kRate:
        value = RateOf(field.tag, status.Sum(field.role, field.number));
        break;
      case Kind::kBehindSteps:
        // heartbeats arrive in any order: the number may count updates that
        // the learner has not reported yet
        value = std::fmax(step, status.Max(field.role, field.number)) -
                status.Mean(field.role, field.number);
        break;
      case Kind::kRateOfEach: {
        const std::vector<HeartbeatMonitor::Entry> entries = monitor.All();
        if (CountOf(entries, field.role) > kMaxRatesOfEach) break;
        for (const HeartbeatMonitor::Entry& entry : entries) {
          const auto found = entry.beat.numbers.find(field.number);
          if (entry.beat.id.role != field.role ||
              found == entry.beat.numbers.end()) {
            continue;
          }
          const std::string tag = field.tag + "/" + entry.beat.id.ToString();
          const double rate = RateOf(tag, found->second.value);
          if (!std::isnan(rate)) values[tag] = rate;
        }
        break;
      }
    }
    if (!std::isnan(value)) values[field.tag] = value;
  }
  return values;
}

double RunCurves::RateOf(const std::string& tag, double total) {
  if (std::isnan(total)) return NAN;
  metrics::RateMeter& meter =
      meters_.try_emplace(tag, kCurveRateWindow).first->second;
  meter.Add(clock_.Now(), total);
  return meter.rate();
}

void RunCurves::Write(const std::map<std::string, double>& values,
                      const metrics::CurvePoint& at) {
  metrics::JsonObject line;
  line.Add("step", at.step).Add("frames", at.frames);
  for (const auto& [tag, value] : values) {
    line.Add(tag, value);
    curves_->AddScalar(tag, value, at);
  }
  lines_->Write(line);
}

}  // namespace replicant::fleet
