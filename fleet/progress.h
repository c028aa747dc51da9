#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics/rate_meter.h"
#include "base/mutex.h"
#include "fleet/terminal_line.h"

namespace replicant::fleet {

struct ProgressOptions {
  // File descriptor to write to; must stay open as long as the ProgressLine.
  int fd = STDERR_FILENO;
  // Interval at which the line is rewritten on a terminal, and at which a new
  // line is printed elsewhere (a file, a pipe, a batch system's log).
  Clock::Duration live_interval = std::chrono::milliseconds(250);
  Clock::Duration plain_interval = std::chrono::seconds(30);
  // Windows over which rates and the time left are measured; a longer one keeps
  // the time left from jumping.
  Clock::Duration rate_window = std::chrono::seconds(10);
  Clock::Duration left_window = std::chrono::seconds(60);
};

// The state of a run in one line:
//
//   return 123.4  step 12.3k/100k  1m03s, 3m20s left  env-steps/s 8.41k
//
// On a terminal the line stays at the bottom and log lines appear above it;
// elsewhere a line is printed once an interval. Entries appear in the order in
// which they were added. An entry that no longer fits on the terminal is left
// out. Add the entries, then call Update() from the loop:
//
//   ProgressLine progress({});
//   progress.AddCount("step", [&] { return steps.value(); }, /*goal=*/100'000);
//   progress.AddRate("env-steps/s", [&] { return env_steps.value(); });
//   while (...) { Step(); progress.Update(); }
//
// Thread-safety: any thread may call Update(), so the sources must allow any
// thread. Make it, add to it and destroy it while no other thread logs (see
// LogAboveLine).
class ProgressLine {
 public:
  // A source must not call the ProgressLine; it may log.
  using Source = std::function<double()>;
  using TextSource = std::function<std::string()>;
  // The same text in several lengths, longest first. The first that fits is
  // shown.
  using FormsSource = std::function<std::vector<std::string>()>;

  // A number and the goal at which the run ends.
  struct Goal {
    Source value;
    double goal = 0.0;
  };

  // Throws InvalidArgument unless all intervals are > 0.
  explicit ProgressLine(const ProgressOptions& options,
                        Clock& clock = Clock::Real());
  // Shows the last state and leaves it on the screen.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "label 12.3k", and with a goal > 0 "label 12.3k/100k".
  void AddCount(std::string label, Source total, double goal = 0.0)
      EXCLUDES(mutex_);
  // "label 8.41k": growth of `total` per second.
  void AddRate(std::string label, Source total) EXCLUDES(mutex_);
  // "label 123.4".
  void AddValue(std::string label, Source value) EXCLUDES(mutex_);

  // "1m03s", the time since the line was made; with goals "1m03s, 3m20s left",
  // until the first of them is reached.
  void AddTime(std::vector<Goal> goals) EXCLUDES(mutex_);
  // "label text"; no entry while the text is empty.
  void AddText(std::string label, TextSource text) EXCLUDES(mutex_);
  void AddForms(std::string label, FormsSource forms) EXCLUDES(mutex_);

  // Shows the state if the interval has passed; cheap if not.
  void Update() EXCLUDES(mutex_);

 private:
  // Returns the forms of an entry; none to leave it out.
  using Entry = std::function<std::vector<std::string>(Clock::TimePoint now)>;

  void Add(Entry entry) EXCLUDES(mutex_);
  // Reads every source and shows the line.
  void Show(Clock::TimePoint now) REQUIRES(mutex_);

  const Clock::Duration rate_window_;
  const Clock::Duration left_window_;
  Clock& clock_;
  const Clock::TimePoint start_;
  TerminalLine line_;
  const Clock::Duration interval_;
  const LogAboveLine log_above_line_;
  Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
  // the first Update() shows
  Clock::TimePoint next_ GUARDED_BY(mutex_){};
};

}  // namespace replicant::fleet
