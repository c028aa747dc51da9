#include "programs/fleet/run_control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rpc/client.h"
#include "base/rpc/group_key.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/protocol/heartbeat.h"
#include "fleet/run_folder.h"
#include "fleet/run_report.h"
#include "programs/run/run_config.h"

namespace replicant::programs {
namespace {

using fleet::RunFolder;
using namespace std::chrono_literals;

constexpr auto kPollInterval = 200ms;
constexpr auto kAnswerPatience = 10s;
constexpr auto kReportPatience = 60s;

// RUN of the command line, as RunFolder::Find() takes it.
std::filesystem::path RunOf(const std::string& given) {
  std::filesystem::path run = RunFolder::Find(given);
  static_cast<void>(RunFolder::ConfigFile(run));  // throws if there is none
  return std::filesystem::canonical(run);
}

int ShowStatus(const std::filesystem::path& run) {
  const auto now = std::chrono::duration<double>(
      std::chrono::system_clock::now().time_since_epoch());
  fmt::print("run      {}\n{}", run.string(),
             fleet::RunReport::Read(run).Table(now.count()));
  return 0;
}

// "HOST" of "HOST/PID".
std::string HostOf(const std::string& owner) {
  return owner.substr(0, owner.rfind('/'));
}

// The process that runs in the folder, on this host. Throws IoError if there is
// none, or if it runs on another host.
pid_t OwnerHere(const std::filesystem::path& run) {
  const std::string owner = RunFolder::LastOwner(run);
  const size_t slash = owner.rfind('/');
  const std::string this_host = HostOf(HostAndPid());
  if (slash != std::string::npos && HostOf(owner) != this_host) {
    throw IoError(fmt::format(
        "{}: the last process that ran there is {}, and this is {}; hint: run "
        "fleet --stop on {}",
        run.string(), owner, this_host, HostOf(owner)));
  }
  pid_t pid = 0;
  const char* const end = owner.data() + owner.size();
  if (slash != std::string::npos) {
    std::from_chars(owner.data() + slash + 1, end, pid);
  }
  if (pid <= 0 || !RunFolder::IsOwner(run, pid)) {
    throw IoError(
        fmt::format("{}: no fleet and no learner runs there", run.string()));
  }
  return pid;
}

// Sends a request to the fleet at `endpoint` and returns the answer. Throws
// CommError if there is none.
rpc::Message Ask(const std::string& endpoint, const std::filesystem::path& run,
                 const std::string& command, uint16_t kind,
                 rpc::Message request) {
  rpc::ZmqContext context;
  rpc::ClientOptions options;
  options.name = command;
  options.socket.curve =
      rpc::GroupKey::FromFile(KeyFileOfRun(run)).client_role();
  rpc::Client client(context, fleet::SupervisionProtocol(), options);
  client.Connect(endpoint);
  rpc::CallReply reply =
      client.Call(kind, std::move(request), {.timeout = kAnswerPatience});
  if (reply.result == rpc::CallResult::kOk) return std::move(reply.payload);
  throw CommError(fmt::format("{}: the fleet does not answer within {} s{}{}",
                              endpoint, kAnswerPatience.count(),
                              reply.error_text.empty() ? "" : ": ",
                              reply.error_text));
}

// Ends a run whose fleet is on another host and lets hosts join: it has
// announced where it listens. Returns nothing if the fleet is here, or lets no
// host join.
std::optional<int> StopElsewhere(const std::filesystem::path& run) {
  const std::string owner = RunFolder::LastOwner(run);
  const std::string endpoint = AnnouncedAddress(run, kJoinPart);
  if (HostOf(owner) == HostOf(HostAndPid()) || endpoint.empty() ||
      RunFolder::StatusOf(run) != fleet::RunStatus::kRunning) {
    return std::nullopt;
  }
  Ask(endpoint, run, "fleet --stop", fleet::kStopKind,
      rpc::EncodeMessage(
          fleet::StopRequest{fmt::format("fleet --stop of {}", HostAndPid())}));
  fmt::print("process {} drains its roles; fleet --stop once more kills them\n",
             owner);
  std::fflush(stdout);
  // a fleet writes its report once a second
  std::optional<std::filesystem::file_time_type> written;
  Clock::TimePoint changed_at;
  while (RunFolder::StatusOf(run) == fleet::RunStatus::kRunning) {
    std::error_code ignored;
    const auto newest =
        std::filesystem::last_write_time(RunFolder::ReportFile(run), ignored);
    const auto now = Clock::Real().Now();
    if (newest != written) {
      written = newest;
      changed_at = now;
    } else if (now - changed_at >= kReportPatience) {
      throw IoError(fmt::format(
          "run folder {}: process {} has written no report for {} s, and may "
          "have been killed; hint: fleet --resume {}",
          run.string(), owner, kReportPatience.count(), run.string()));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  // the lock, which the fleet holds to its very end, can be tried on its host
  // alone
  fmt::print("it has ended; {} may still evaluate and film the last policy\n",
             owner);
  return 0;
}

int Stop(const std::filesystem::path& run) {
  if (const auto code = StopElsewhere(run)) return *code;
  const pid_t pid = OwnerHere(run);
  // a SIGTERM would let hosts wait for the run to continue
  if (::kill(pid, SIGINT) != 0) {
    throw IoError::FromErrno(fmt::format("stop process {}", pid), run, errno);
  }
  fmt::print("process {} drains its roles; fleet --stop once more kills them\n",
             pid);
  std::fflush(stdout);
  while (RunFolder::IsOwner(run, pid)) {
    std::this_thread::sleep_for(kPollInterval);
  }
  fmt::print("it has ended\n");
  return 0;
}

// "actor=200" as a request.
fleet::ScaleRequest ParseScale(const std::string& word) {
  const size_t sign = word.find('=');
  fleet::ScaleRequest request{.role = word.substr(0, sign)};
  // the configuration's word is the plural
  if (request.role == "actors") request.role = "actor";
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(
      word.data() + std::min(sign, word.size() - 1) + 1, end, request.count);
  if (sign == std::string::npos || !fleet::IsRoleName(request.role) ||
      error != std::errc() || rest != end) {
    throw ConfigError(
        fmt::format("--scale: '{}' is not of the form actors=NUMBER", word));
  }
  request.who = fmt::format("fleet --scale of {}", HostAndPid());
  return request;
}

int Scale(const std::filesystem::path& run,
          const fleet::ScaleRequest& request) {
  const fleet::RunReport report = fleet::RunReport::Read(run);
  if (RunFolder::StatusOf(run) != fleet::RunStatus::kRunning) {
    throw IoError(
        fmt::format("{}: the run has ended: {}", run.string(), report.status));
  }
  if (HostOf(report.fleet) != HostOf(HostAndPid()) &&
      rpc::IsLocalEndpoint(report.endpoint)) {
    throw IoError(fmt::format(
        "{}: its fleet is {} and takes requests of its host alone; hint: run "
        "fleet --scale on {}",
        run.string(), report.fleet, HostOf(report.fleet)));
  }
  const auto reply = rpc::DecodeMessage<fleet::ScaleReply>(
      Ask(report.endpoint, run, "fleet --scale", fleet::kScaleKind,
          rpc::EncodeMessage(request)));
  if (!reply.refusal.empty()) {
    throw ConfigError(fmt::format("--scale {}={}: {}", request.role,
                                  request.count, reply.refusal));
  }
  fmt::print("{} processes of role {} instead of {}\n", request.count,
             request.role, reply.previous);
  return 0;
}

// The newest log of each role, by its name. `wanted` is a role, a role with its
// index, or empty.
std::map<std::string, std::filesystem::path> NewestLogs(
    const std::filesystem::path& run, const std::string& wanted) {
  std::map<std::string, std::pair<int64_t, std::filesystem::path>> newest;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(run / "logs", error)) {
    // "actor-3.2.log"
    const std::filesystem::path stem = entry.path().stem();
    const std::string number = stem.extension();
    const std::string role = stem.stem();
    int64_t incarnation = 0;
    if (number.empty() ||
        std::from_chars(number.data() + 1, number.data() + number.size(),
                        incarnation)
                .ec != std::errc()) {
      continue;
    }
    const bool is_wanted = wanted.empty() || role == wanted ||
                           role.substr(0, role.rfind('-')) == wanted;
    auto& found = newest[is_wanted ? role : ""];
    if (is_wanted && incarnation >= found.first) {
      found = {incarnation, entry.path()};
    }
  }
  newest.erase("");
  std::map<std::string, std::filesystem::path> logs;
  for (const auto& [role, log] : newest) logs[role] = log.second;
  return logs;
}

// Prints files as they grow, each line behind the name of its role.
class LogPrinter {
 public:
  void Print(const std::string& role, const std::filesystem::path& file,
             bool has_prefix) {
    Log& log = logs_[role];
    if (log.file != file) log = {.file = file, .offset = 0};
    std::ifstream stream(file);
    stream.seekg(log.offset);
    std::string line;
    // a line without its end is left for the next time
    while (std::getline(stream, line) && !stream.eof()) {
      log.offset += static_cast<std::streamoff>(line.size()) + 1;
      if (has_prefix) fmt::print("{}: ", role);
      fmt::print("{}\n", line);
    }
  }

 private:
  struct Log {
    std::filesystem::path file;
    std::streamoff offset = 0;
  };
  std::map<std::string, Log> logs_;
};

int PrintLogs(const std::filesystem::path& run, const std::string& role,
              bool follows) {
  LogPrinter printer;
  if (NewestLogs(run, role).empty()) {
    std::vector<std::string> names;
    for (const auto& [name, file] : NewestLogs(run, "")) names.push_back(name);
    throw IoError(fmt::format("{}: no log of '{}'; roles with logs: {}",
                              (run / "logs").string(), role,
                              fmt::join(names, ", ")));
  }
  while (true) {
    const auto logs = NewestLogs(run, role);
    for (const auto& [name, file] : logs) {
      printer.Print(name, file, /*has_prefix=*/logs.size() > 1);
    }
    std::fflush(stdout);
    if (!follows) return 0;
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

void AddRunControl(config::CommandLine& command_line) {
  // for --help; ControlRun() acts on the options before they are read here
  static std::string ignored;
  command_line.AddOption(
      "--status", &ignored,
      "show the state of every role of the run in this folder");
  command_line.AddOption(
      "--logs", &ignored,
      "print the logs of the run in this folder: --logs RUN [ROLE] [--follow]");
  command_line.AddOption("--stop", &ignored,
                         "end the run in this folder, as Ctrl-C does");
  command_line.AddOption("--scale", &ignored,
                         "change the number of actors of the run in this "
                         "folder while it goes on: --scale RUN actors=NUMBER");
}

std::optional<int> ControlRun(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return std::nullopt;
  const std::string& command = words[0];
  const bool is_logs = command == "--logs";
  const bool is_scale = command == "--scale";
  if (command != "--status" && command != "--stop" && !is_logs && !is_scale) {
    return std::nullopt;
  }
  if (words.size() < 2) {
    throw ConfigError(fmt::format("{}: want the folder of a run", command));
  }
  if (is_scale) {
    if (words.size() != 3) {
      throw ConfigError("--scale: want --scale RUN actors=NUMBER");
    }
    const fleet::ScaleRequest request = ParseScale(words[2]);
    return Scale(RunOf(words[1]), request);
  }
  std::string role;
  bool follows = false;
  for (size_t i = 2; i < words.size(); ++i) {
    if (is_logs && (words[i] == "--follow" || words[i] == "-f")) {
      follows = true;
    } else if (is_logs && role.empty() && !words[i].starts_with("-")) {
      role = words[i];
    } else {
      throw ConfigError(fmt::format(
          "{} {}: '{}' does not belong there; want {}", command, words[1],
          words[i],
          is_logs ? "--logs RUN [ROLE] [--follow]" : command + " RUN"));
    }
  }
  const std::filesystem::path run = RunOf(words[1]);
  if (is_logs) return PrintLogs(run, role, follows);
  return command == "--stop" ? Stop(run) : ShowStatus(run);
}

}  // namespace replicant::programs
