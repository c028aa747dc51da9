#include "fleet/log_follower.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace replicant::fleet {
namespace {

// Maximum bytes read from one file per interval.
constexpr size_t kMaxBytesAtOnce = size_t{1} << 18;
constexpr size_t kMaxLineBytes = 4096;

struct LogLine {
  char level = 0;
  std::string_view message;
};

// Splits "2026-11-21 06:13:24.123 W learner/4711 message"; std::nullopt for a
// line of another form.
std::optional<LogLine> ParseLine(std::string_view line) {
  std::array<std::string_view, 4> words;  // date, time, level, role/pid
  for (std::string_view& word : words) {
    const size_t end = line.find(' ');
    if (end == std::string_view::npos) return std::nullopt;
    word = line.substr(0, end);
    line.remove_prefix(end + 1);
  }
  const auto& [date, time, level, role] = words;
  if (date.size() != 10 || date[4] != '-' || time.size() != 12 ||
      level.size() != 1 || role.find('/') == std::string_view::npos) {
    return std::nullopt;
  }
  return LogLine{level[0], line};
}

}  // namespace

std::string_view MessageOfLogLine(std::string_view line) {
  const std::optional<LogLine> parsed = ParseLine(line);
  return parsed ? parsed->message : line;
}

LogFollower::LogFollower(Clock::Duration interval, Clock& clock)
    : interval_(interval),
      clock_(clock),
      thread_("log-follower",
              [this](const Thread::StopToken& token) { Run(token); }) {}

LogFollower::~LogFollower() = default;

void LogFollower::Follow(const std::string& role,
                         const std::filesystem::path& file) {
  Follow({.role = role, .file = file});
}

void LogFollower::FollowNew(const std::string& role,
                            const std::filesystem::path& file) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(file, error);
  Follow({.role = role,
          .file = file,
          .offset = error ? 0 : static_cast<int64_t>(size)});
}

void LogFollower::Follow(Order order) {
  MutexLock lock(mutex_);
  std::filesystem::path& newest = newest_[order.role];
  if (newest == order.file) return;
  newest = order.file;
  orders_.push_back(std::move(order));
}

void LogFollower::Run(const Thread::StopToken& token) {
  while (!token.IsStopRequested()) {
    ReadNext(kMaxFilesPerInterval);
    std::this_thread::sleep_for(interval_);
  }
  ReadNext(roles_.max_size());
  for (auto& [name, role] : roles_) EndMinute(name, role);
}

void LogFollower::ReadNext(size_t max_files) {
  decltype(orders_) orders;
  {
    MutexLock lock(mutex_);
    orders.swap(orders_);
  }
  for (const Order& order : orders) Turn(order);
  const size_t count = std::min(max_files, roles_.size());
  auto next = roles_.upper_bound(last_read_);
  for (size_t i = 0; i < count; ++i) {
    if (next == roles_.end()) next = roles_.begin();
    last_read_ = next->first;
    Read(next->first, next->second);
    ++next;
  }
}

void LogFollower::Turn(const Order& order) {
  Role& role = roles_[order.role];
  // the rest of the log of the role's previous process
  if (!role.file.empty()) Read(order.role, role);
  role.file = order.file;
  role.offset = order.offset;
  role.partial_line.clear();
}

void LogFollower::Read(const std::string& name, Role& role) {
  if (clock_.Now() - role.minute >= std::chrono::minutes(1)) {
    EndMinute(name, role);
  }
  // most files have not grown
  struct stat status {};
  if (::stat(role.file.c_str(), &status) != 0 ||
      (S_ISREG(status.st_mode) && status.st_size <= role.offset)) {
    return;
  }
  std::ifstream file(role.file, std::ios::binary);
  if (!file.seekg(role.offset)) return;
  buffer_.resize(kMaxBytesAtOnce);
  file.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  role.offset += file.gcount();
  for (const char c : std::string_view(buffer_).substr(
           0, static_cast<size_t>(file.gcount()))) {
    if (c != '\n') {
      if (role.partial_line.size() < kMaxLineBytes) role.partial_line += c;
      continue;
    }
    Repeat(name, role, std::exchange(role.partial_line, {}));
  }
}

void LogFollower::Repeat(const std::string& name, Role& role,
                         const std::string& line) {
  const std::optional<LogLine> parsed = ParseLine(line);
  if (!parsed) return;
  const bool is_error = parsed->level == 'E' || parsed->level == 'C';
  if (!is_error && parsed->level != 'W') return;
  if (role.num_lines >= kMaxLinesPerMinute) {
    ++role.num_withheld;
    return;
  }
  ++role.num_lines;
  spdlog::log(is_error ? spdlog::level::err : spdlog::level::warn, "{}: {}",
              name, parsed->message);
}

void LogFollower::EndMinute(const std::string& name, Role& role) {
  if (role.num_withheld > 0) {
    spdlog::warn("{}: {} more warnings in {}", name, role.num_withheld,
                 role.file.string());
  }
  role.minute = clock_.Now();
  role.num_lines = 0;
  role.num_withheld = 0;
}

}  // namespace replicant::fleet
