#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace replicant::fleet {

// Returns the message of a line of a log (base/log.h), and any other line
// as it is.
std::string_view MessageOfLogLine(std::string_view line);

// Repeats the warnings and errors of roles in this process's log: the lines of
// base/log.h with level W, E or C, as "ROLE: MESSAGE". Lines beyond
// kMaxLinesPerMinute of a role are only counted.
//
// At most kMaxFilesPerInterval files are looked at in one interval, so that the
// logs of 10,000 processes cost no more than those of 1,000.
//
// A separate thread reads the files, so that no disk delays the caller; the
// destructor waits for that thread.
//
// Thread-safety: any thread.
class LogFollower {
 public:
  explicit LogFollower(
      Clock::Duration interval = std::chrono::milliseconds(250),
      Clock& clock = Clock::Real());
  // Reads the rest of the files.
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // Follows `file` from its beginning, instead of the role's earlier file. The
  // file need not exist yet.
  void Follow(const std::string& role, const std::filesystem::path& file)
      EXCLUDES(mutex_);
  // The same without what the file holds by now, such as the lines of an
  // earlier launcher's agent.
  void FollowNew(const std::string& role, const std::filesystem::path& file)
      EXCLUDES(mutex_);

  static constexpr int kMaxLinesPerMinute = 10;
  static constexpr size_t kMaxFilesPerInterval = 1000;

 private:
  struct Role {
    std::filesystem::path file;
    int64_t offset = 0;        // of the first unread byte
    std::string partial_line;  // the bytes before it
    Clock::TimePoint minute;   // start of the current minute
    int num_lines = 0;         // repeated in this minute
    int64_t num_withheld = 0;  // withheld in this minute
  };

  void Run(const Thread::StopToken& token) EXCLUDES(mutex_);
  // Opens new files and reads the next ones, at most `max_files`.
  void ReadNext(size_t max_files) EXCLUDES(mutex_);
  struct Order {
    std::string role;
    std::filesystem::path file;
    int64_t offset = 0;  // where to begin
  };
  void Follow(Order order) EXCLUDES(mutex_);
  void Turn(const Order& order);
  void Read(const std::string& name, Role& role);
  void Repeat(const std::string& name, Role& role, const std::string& line);
  void EndMinute(const std::string& name, Role& role);

  const Clock::Duration interval_;
  Clock& clock_;
  // used by the thread only
  std::map<std::string, Role> roles_;
  std::string last_read_;  // the role whose file was read last
  std::string buffer_;
  Mutex mutex_;
  std::map<std::string, std::filesystem::path> newest_ GUARDED_BY(mutex_);
  // files that the thread has yet to open, in order
  std::vector<Order> orders_ GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace replicant::fleet
