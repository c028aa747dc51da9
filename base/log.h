#pragma once

#include <string>

namespace replicant {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// How a process logs. The one global of the code base is spdlog's default
// logger; libraries log with spdlog::info() and the like and never print.
struct LogOptions {
  // Role of this process in the fleet: "learner", "actor-3".
  std::string role = "main";
  LogLevel level = LogLevel::kInfo;
  // File to append to, in a folder that exists; empty: no file.
  std::string file;
  // Log lines on stderr. stdout stays free for results.
  bool console = true;
};

// Sets up the default logger of this process. A line reads
//
//   2026-11-21 06:13:24.123 I learner/4711 message
//
// with the level as one letter (T D I W E C). The file is flushed at every
// warning and at least once a second. Not thread-safe: call it at the start of
// main(), or again to change the options.
// Throws IoError, leaving the old logger, if the file cannot be opened.
void InitLogging(const LogOptions& options);

}  // namespace replicant
