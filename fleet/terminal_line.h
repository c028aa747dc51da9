#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace replicant::fleet {

// `text` as one line of at most `columns` characters for a terminal: control
// characters, which could move the cursor, become spaces, and a text that does
// not fit is cut and ends with "…". A character counts as one column; wide
// (East Asian) and combining characters get no special treatment.
std::string FitToColumns(std::string_view text, int columns);

// One line at the bottom of a terminal that is rewritten in place.
//
// The text is cut to the current width of the terminal. The cursor rests at the
// start of the line, so that output of another program replaces the line
// instead of following it. The cursor is never hidden and no terminal mode is
// changed, so a killed process leaves the terminal intact. Errors of the
// terminal are ignored: the line is decoration.
//
// Thread-safety: any thread.
class TerminalLine {
 public:
  // `fd` stays the caller's and open. Live only if it is a terminal that can
  // erase to the end of a line (TERM is set and not "dumb").
  explicit TerminalLine(int fd);
  // Finishes.
  ~TerminalLine();
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // If false, Show() prints each text whole, on a separate line.
  bool is_live() const { return is_live_; }

  // Maximum columns of a text at present; the largest int if the line is not
  // live.
  int columns() const;

  void Show(std::string_view text) EXCLUDES(mutex_);

  // Erases the line, runs `print` and draws the line again. `print` may write
  // whole lines to the terminal but must not call this object.
  void PrintAbove(const std::function<void()>& print) EXCLUDES(mutex_);

  // Leaves the last text on the screen and moves the cursor below it.
  void Finish() EXCLUDES(mutex_);

 private:
  void Paint() REQUIRES(mutex_);

  const int fd_;
  const bool is_live_;
  Mutex mutex_;
  // what is on the screen; empty for nothing
  std::string text_ GUARDED_BY(mutex_);
};

// While it lives, console output of the default logger appears above a live
// line. It wraps the console sinks of the logger.
//
// Thread-safety: make and destroy it while no other thread logs, after
// InitLogging(). The line must outlive it.
class LogAboveLine {
 public:
  explicit LogAboveLine(TerminalLine& line);
  ~LogAboveLine();
  LogAboveLine(const LogAboveLine&) = delete;
  LogAboveLine& operator=(const LogAboveLine&) = delete;

 private:
  struct Wrapped;
  std::unique_ptr<Wrapped> wrapped_;
};

}  // namespace replicant::fleet
