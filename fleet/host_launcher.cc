#include "fleet/host_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "fleet/log_follower.h"
#include "fleet/run_folder.h"

namespace replicant::fleet {
namespace {

constexpr double kFirstPauseS = 1.0;
constexpr double kLongestPauseS = 30.0;
// An agent that has run this long resets the count of failures in a row.
constexpr auto kGoodRun = std::chrono::seconds(60);

// A host's name as part of the name of a file.
std::string FileNameOf(std::string host) {
  std::ranges::replace(host, '/', '_');
  return host;
}

}  // namespace

HostLauncher::HostLauncher(std::vector<Host> hosts, std::string ticket,
                           const std::filesystem::path& log_folder,
                           HostPool* pool, Clock* clock)
    : ticket_(std::move(ticket)), pool_(*pool), clock_(*clock) {
  for (Host& host : hosts) {
    Member member;
    member.log =
        log_folder / fmt::format("host-{}.1.log", FileNameOf(host.name));
    member.host = std::move(host);
    member.start_at = clock_.Now();
    members_.push_back(std::move(member));
  }
}

HostLauncher::~HostLauncher() {
  // the agents end with their inputs, and then the commands do
  for (Member& member : members_) Close(member);
  const Clock::TimePoint deadline = clock_.Now() + std::chrono::seconds(3);
  for (Member& member : members_) {
    if (member.process == nullptr) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(Clock::Duration(0), deadline - clock_.Now()));
    static_cast<void>(member.process->Wait(left));
  }
}

void HostLauncher::Close(Member& member) {
  if (member.input_fd >= 0) ::close(std::exchange(member.input_fd, -1));
}

void HostLauncher::Step() {
  for (Member& member : members_) {
    if (member.process != nullptr) {
      if (const auto status =
              member.process->Wait(std::chrono::milliseconds(0))) {
        HandleEnd(member, *status);
      }
    } else if (clock_.Now() >= member.start_at) {
      try {
        Start(member);
      } catch (const IoError& error) {
        // a command that has never run
        if (member.num_failures == 0 &&
            dynamic_cast<const ExecuteError*>(&error) != nullptr) {
          throw ConfigError(
              fmt::format("cluster.ssh_command: the agent of host {} cannot be "
                          "started: {}",
                          member.host.name, error.what()));
        }
        BackOff(member, fmt::format("cannot be started: {}", error.what()));
      }
    }
  }
}

void HostLauncher::Start(Member& member) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw IoError::FromErrno("pipe", member.host.name, errno);
  }
  ProcessOptions options;
  options.command = member.host.command;
  options.stdin_fd = ends[0];
  options.stdout_file = member.log;
  options.stderr_file = member.log;
  member.started_at = clock_.Now();
  member.input_fd = ends[1];
  // a ticket is far smaller than the buffer of a pipe
  [[maybe_unused]] const ssize_t written =
      ::write(ends[1], ticket_.data(), ticket_.size());
  try {
    member.process = std::make_unique<Process>(options);
    ::close(ends[0]);
  } catch (...) {
    ::close(ends[0]);
    Close(member);
    throw;
  }
  spdlog::info("starting the agent of host {}", member.host.name);
}

void HostLauncher::HandleEnd(Member& member, const ExitStatus& status) {
  member.process.reset();
  Close(member);
  pool_.Lose(member.host.name, "its agent has ended");
  const std::string last_line =
      LogTail(member.log, /*max_lines=*/1, /*indent=*/"");
  BackOff(member,
          fmt::format("has ended: {}{}", status.ToString(),
                      last_line.empty()
                          ? ""
                          : fmt::format(" ({})", MessageOfLogLine(last_line))));
}

void HostLauncher::BackOff(Member& member, const std::string& why) {
  const Clock::TimePoint now = clock_.Now();
  if (now - member.started_at > kGoodRun) member.num_failures = 0;
  const double pause_s = std::min(
      kLongestPauseS,
      kFirstPauseS * static_cast<double>(int64_t{1} << std::min<int64_t>(
                                             member.num_failures, 10)));
  ++member.num_failures;
  member.start_at = now + FromSeconds(pause_s);
  spdlog::warn("host {}: its agent {}; restart in {:.0f} s", member.host.name,
               why, pause_s);
}

std::vector<std::pair<std::string, std::filesystem::path>> HostLauncher::Logs()
    const {
  std::vector<std::pair<std::string, std::filesystem::path>> logs;
  for (const Member& member : members_) {
    logs.emplace_back(member.host.name, member.log);
  }
  return logs;
}

std::string MakeTicket(const std::string& endpoint,
                       const std::filesystem::path& key_file) {
  return endpoint + "\n" + ReadFile(key_file, /*max_size_bytes=*/4096) +
         "end\n";
}

}  // namespace replicant::fleet
