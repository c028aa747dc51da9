#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/metrics/rate_meter.h"
#include "core/metrics/terminal_line.h"

namespace replicant::metrics {

struct ProgressOptions {
  // File descriptor to write to; must stay open as long as the ProgressLine.
  int fd = STDERR_FILENO;
  // Interval at which the line is rewritten on a terminal, and at which a new
  // line is printed elsewhere (a file, a pipe, a batch system's log).
  Clock::Duration live_interval = std::chrono::milliseconds(250);
  Clock::Duration plain_interval = std::chrono::seconds(30);
  // Window over which rates and the remaining time are measured.
  Clock::Duration rate_window = std::chrono::seconds(10);
};

// The state of a run in one line:
//
//   step 12.3k/100k 12% eta 3m20s  env-steps/s 8.41k  return 123.4
//
// On a terminal the line stays at the bottom and log lines appear above it;
// elsewhere a line is printed once an interval. Add the entries, then call
// Update() from the loop:
//
//   ProgressLine progress({});
//   progress.AddCount("step", [&] { return steps.value(); }, /*goal=*/100'000);
//   progress.AddRate("env-steps/s", [&] { return env_steps.value(); });
//   while (...) { Step(); progress.Update(); }
//
// Thread-safety: Update() is for any thread, and so must be the sources. Make
// it, add to it and destroy it while no other thread logs (see LogAboveLine).
class ProgressLine {
 public:
  // Must not call the ProgressLine; may log.
  using Source = std::function<double()>;

  // Throws InvalidArgument unless all intervals are > 0.
  explicit ProgressLine(const ProgressOptions& options,
                        Clock& clock = Clock::Real());
  // Shows the last state and leaves it on the screen.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "label 12.3k", and with a goal > 0 "label 12.3k/100k 12% eta 3m20s".
  void AddCount(std::string label, Source total, double goal = 0.0)
      EXCLUDES(mutex_);
  // "label 8.41k": growth of `total` per second.
  void AddRate(std::string label, Source total) EXCLUDES(mutex_);
  // "label 123.4".
  void AddValue(std::string label, Source value) EXCLUDES(mutex_);

  // "label text".
  void AddText(std::string label, std::function<std::string()> text)
      EXCLUDES(mutex_);

  // Shows the state if the interval has passed; cheap if not.
  void Update() EXCLUDES(mutex_);

 private:
  struct Field {
    enum class Kind { kCount, kRate, kValue, kText } kind;
    std::string label;
    Source source;
    double goal;
    RateMeter meter;
    std::function<std::string()> text;  // kText
  };

  void AddField(Field::Kind kind, std::string label, Source source, double goal)
      EXCLUDES(mutex_);
  // Reads every source and shows the line.
  void Show(Clock::TimePoint now) REQUIRES(mutex_);
  static std::string Format(Field& field, Clock::TimePoint now);

  const Clock::Duration rate_window_;
  Clock& clock_;
  TerminalLine line_;
  const Clock::Duration interval_;
  const LogAboveLine log_above_line_;
  Mutex mutex_;
  std::vector<Field> fields_ GUARDED_BY(mutex_);
  // the first Update() shows
  Clock::TimePoint next_ GUARDED_BY(mutex_){};
};

}  // namespace replicant::metrics
