#include "fleet/host_agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/client.h"
#include "base/rpc/envelope.h"
#include "base/rpc/group_key.h"
#include "base/thread.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/protocol/heartbeat_sender.h"

namespace replicant::fleet {
namespace {

using namespace std::chrono_literals;

constexpr auto kHostReportInterval = 250ms;
constexpr auto kStep = 50ms;
constexpr auto kJoinAttempt = 2s;
// for the answer to a join, which has all files of the run
constexpr auto kFilesPatience = 60s;
// without an answer from the launcher
constexpr auto kSilent = 3s;
// A folder may report the end of a run that is about to be resumed.
constexpr auto kSureOfEnd = 30s;
// of a role's log in one report
constexpr std::streamsize kLogBytes = 64 << 10;

// as in a run's folder
constexpr const char* kRunKeyName = "run.key";
constexpr uint64_t kMaxKeyBytes = 4096;

// Whether the other end of a pipe is closed. Does not read the pipe.
bool HasEnded(int lease_fd) {
  if (lease_fd < 0) return false;
  pollfd waiting = {lease_fd, POLLIN, 0};
  if (::poll(&waiting, 1, 0) <= 0) return false;
  char byte;
  return ::read(lease_fd, &byte, 1) <= 0;
}

// One process of a role, and what was sent of its log.
struct OwnProcess {
  RoleId id;
  uint32_t incarnation = 1;
  std::filesystem::path log;
  std::unique_ptr<Process> process;
  std::optional<ExitStatus> status;
  std::streamoff num_sent = 0;
  std::streamoff num_in_flight = 0;  // bytes of the log in the last report
  bool is_end_in_flight = false;     // the last report has its end
};

enum class End { kLeft, kStopped, kLost };

// The time from an accepted join to the loss of the launcher.
class Membership {
 public:
  Membership(const HostAgentOptions& options, const StopSignal& stop,
             LauncherAddress launcher)
      : options_(options),
        stop_(stop),
        launcher_(std::move(launcher)),
        key_(rpc::GroupKey::FromFile(launcher_.key_file)),
        folder_("replicant-host"),
        client_(context_, SupervisionProtocol(), ForClient()) {
    if (key_.is_set()) {
      KeepFile({kRunKeyName, ReadFile(launcher_.key_file, kMaxKeyBytes)});
    }
  }

  // Offers the host; false if there was no answer in time, at a signal and at
  // the end of the lease. Throws CommError if the keys do not fit, and IoError
  // if the launcher refuses the host.
  bool Join() {
    // until all files are here, nothing else comes from the launcher
    rpc::ClientOptions patient = ForClient();
    patient.server_timeout = kFilesPatience;
    rpc::Client client(context_, SupervisionProtocol(), std::move(patient));
    client.Connect(launcher_.endpoint);
    if (client.AwaitSession(kJoinAttempt) != rpc::CallResult::kOk) return false;
    const JoinRequest request = {
        .agent = id_,
        .host = options_.host,
        .role = options_.role,
        .processors = static_cast<uint32_t>(CpuSet::OfThisThread().size()),
        .slots = options_.slots};
    const rpc::Client::RequestId call =
        client
            .Start(kJoinKind, request.Encode(),
                   {.timeout = kFilesPatience,
                    .is_idempotent = true,
                    .attempt_timeout = kFilesPatience})
            .value();
    while (!client.IsDone(call)) {
      if (stop_.count() > 0 || HasEnded(options_.lease_fd) ||
          !client.IsResponsive()) {
        return false;
      }
      client.Process(kStep);
    }
    const rpc::CallReply reply = client.Wait(call);
    if (reply.result == rpc::CallResult::kError) {
      throw IoError(
          fmt::format("{}: {}", launcher_.endpoint, reply.error_text));
    }
    if (reply.result != rpc::CallResult::kOk) return false;
    JoinReply answer = rpc::DecodeMessage<JoinReply>(reply.payload);
    if (!answer.refusal.empty()) {
      throw IoError(fmt::format("{} refuses this host: {}", launcher_.endpoint,
                                answer.refusal));
    }
    timeout_ = FromSeconds(answer.timeout_s);
    answered_at_ = Now();
    for (const AgentFile& file : answer.files) KeepFile(file);
    MakeFolders(folder_.path() / "logs");
    client_.Connect(launcher_.endpoint);
    spdlog::info("host {} has joined the run at {}", options_.host,
                 launcher_.endpoint);
    return true;
  }

  // Runs processes until the run, the agent or the launcher ends.
  End Serve() {
    while (true) {
      client_.Process(kStep);
      if (HasEnded(options_.lease_fd)) return End::kStopped;
      if (stop_.count() > 0) {
        Leave();
        return End::kStopped;
      }
      for (OwnProcess& own : processes_) {
        if (!own.status) own.status = own.process->Wait(0ms);
      }
      if (const auto end = ReadAnswer()) return *end;
      if (HasMoved()) {
        spdlog::info("the run has another launcher");
        return End::kLost;
      }
      if (Now() - answered_at_ > timeout_) {
        spdlog::warn(
            "no answer from the launcher for {:.3g} s; ending {} processes",
            ToSeconds(timeout_), processes_.size());
        return End::kLost;
      }
      if (!request_ && Now() >= next_report_) SendReport();
    }
  }

 private:
  static Clock::TimePoint Now() { return Clock::Real().Now(); }
  rpc::ClientOptions ForClient() const {
    return {.socket = {.curve = key_.client_role()},
            .name = "agent of " + options_.host};
  }

  // Whether another launcher has replaced a silent one at a new address.
  bool HasMoved() {
    if (Now() - answered_at_ < kSilent || Now() < next_look_) return false;
    next_look_ = Now() + kJoinAttempt;
    try {
      return options_.find_launcher().endpoint != launcher_.endpoint;
    } catch (const std::exception&) {
      return false;
    }
  }

  void KeepFile(const AgentFile& file) {
    const std::filesystem::path path = folder_.path() / file.path;
    MakeFolders(path.parent_path());
    // every file may hold a secret
    AtomicWriteFile(path, file.bytes, 0600);
  }

  void SendReport() {
    AgentReport report{.agent = id_,
                       .is_leaving = is_leaving_,
                       .last_order = last_order_,
                       .processes = {},
                       .logs = {}};
    for (OwnProcess& own : processes_) {
      const std::string bytes = takes_logs_ ? NewBytesOf(own) : "";
      own.num_in_flight = static_cast<std::streamoff>(bytes.size());
      if (!bytes.empty()) {
        report.logs.push_back({.id = own.id,
                               .incarnation = own.incarnation,
                               .offset = static_cast<uint64_t>(own.num_sent),
                               .bytes = bytes});
      }
      // the launcher looks into the log once it knows of the end; a disk that
      // stands still costs the rest of the log, and delays no restart
      own.is_end_in_flight = own.status && bytes.empty() && !is_draining_;
      AgentProcess process{.id = own.id, .incarnation = own.incarnation};
      if (own.is_end_in_flight) {
        process.has_ended = true;
        process.code = own.status->code;
        process.signal = own.status->signal;
      }
      report.processes.push_back(std::move(process));
    }
    request_ = client_.Start(kReportKind, rpc::EncodeMessage(report),
                             {.timeout = 2 * timeout_, .is_idempotent = true});
    next_report_ = Now() + kHostReportInterval;
  }

  static std::string NewBytesOf(const OwnProcess& own) {
    std::ifstream file(own.log, std::ios::binary);
    file.seekg(own.num_sent);
    std::string bytes(kLogBytes, '\0');
    file.read(bytes.data(), kLogBytes);
    bytes.resize(
        static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
    return bytes;
  }

  std::optional<End> ReadAnswer() {
    if (!request_ || !client_.IsDone(*request_)) return std::nullopt;
    const rpc::CallReply reply = client_.Wait(*std::exchange(request_, {}));
    if (reply.result == rpc::CallResult::kError) {
      spdlog::warn("the launcher: {}", reply.error_text);
      return std::nullopt;
    }
    if (reply.result != rpc::CallResult::kOk) return std::nullopt;
    const auto answer = rpc::DecodeMessage<ReportReply>(reply.payload);
    answered_at_ = Now();
    takes_logs_ = answer.takes_logs;
    std::erase_if(processes_, [this](OwnProcess& own) {
      const auto num_in_flight = std::exchange(own.num_in_flight, 0);
      if (takes_logs_) own.num_sent += num_in_flight;
      return own.is_end_in_flight;
    });
    if (is_draining_) return std::nullopt;
    switch (answer.verdict) {
      case ReportReply::Verdict::kJoinAgain:
        spdlog::info("{}; joining again", answer.reason);
        return End::kLost;
      case ReportReply::Verdict::kLeave:
        spdlog::info("leaving the run: {}", answer.reason);
        return End::kLeft;
      case ReportReply::Verdict::kGoOn:
        break;
    }
    for (const AgentOrder& order : answer.orders) {
      if (order.number <= last_order_) continue;
      last_order_ = order.number;
      CarryOut(order);
      next_report_ = Now();
    }
    return std::nullopt;
  }

  void CarryOut(const AgentOrder& order) {
    if (order.kind == AgentOrder::Kind::kSignal) {
      for (OwnProcess& own : processes_) {
        if (own.id == order.id && own.incarnation == order.incarnation &&
            !own.status) {
          own.process->Signal(order.signal);
        }
      }
      return;
    }
    OwnProcess own{.id = order.id, .incarnation = order.incarnation};
    own.log = folder_.path() / "logs" /
              fmt::format("{}.{}.log", own.id.ToString(), own.incarnation);
    const HeartbeatSenderOptions heartbeat = {
        .endpoint = launcher_.endpoint,
        .key_file =
            key_.is_set() ? (folder_.path() / kRunKeyName).string() : "",
        .id = own.id,
        .incarnation = own.incarnation};
    ProcessOptions process;
    process.environment = heartbeat.ToEnvironment();
    process.stdout_file = own.log;
    process.stderr_file = own.log;
    try {
      process.command = options_.make_command(order.id, folder_.path());
      process.command.insert(process.command.end(), order.arguments.begin(),
                             order.arguments.end());
      own.process = std::make_unique<Process>(process);
      spdlog::info("starts {}", own.id.ToString());
    } catch (const Error& e) {
      spdlog::warn("{} cannot be started: {}", own.id.ToString(), e.what());
      std::ofstream(own.log) << e.what() << "\n";
      constexpr int kNotStarted = 127;
      own.status = ExitStatus{kNotStarted, 0};
    }
    processes_.push_back(std::move(own));
  }

  // Lets the processes drain, sends the rest of their logs and says goodbye. A
  // launcher that takes no logs has the rest of drain_timeout to take them. The
  // host ended the processes, so their ends are not reported.
  void Leave() {
    is_draining_ = true;
    spdlog::info("host {} leaves the run", options_.host);
    for (OwnProcess& own : processes_) {
      if (!own.status) own.process->Signal(SIGTERM);
    }
    const Clock::TimePoint deadline = Now() + options_.drain_timeout;
    const auto all_ended = [this] {
      for (OwnProcess& own : processes_) {
        if (!own.status) own.status = own.process->Wait(0ms);
      }
      return std::ranges::all_of(processes_, [](const OwnProcess& own) {
        return own.status.has_value();
      });
    };
    const auto all_sent = [this] {
      return std::ranges::all_of(processes_, [](const OwnProcess& own) {
        return NewBytesOf(own).empty();
      });
    };
    while (!(all_ended() && all_sent()) && Now() < deadline) {
      client_.Process(kStep);
      if (HasEnded(options_.lease_fd)) return;
      static_cast<void>(ReadAnswer());
      if (!request_ && Now() >= next_report_) SendReport();
    }
    processes_.clear();
    request_.reset();
    is_leaving_ = true;
    SendReport();
    const Clock::TimePoint patience = Now() + 2s;
    while (request_ && !client_.IsDone(*request_) && Now() < patience) {
      client_.Process(kStep);
    }
  }

  const HostAgentOptions& options_;
  const StopSignal& stop_;
  const LauncherAddress launcher_;
  const rpc::GroupKey key_;
  const uint64_t id_ = rpc::RandomId();
  const TemporaryFolder folder_;
  rpc::ZmqContext context_;
  rpc::Client client_;
  Clock::Duration timeout_{};
  Clock::TimePoint answered_at_;
  Clock::TimePoint next_report_;
  Clock::TimePoint next_look_;
  std::optional<rpc::Client::RequestId> request_;
  uint64_t last_order_ = 0;
  bool is_draining_ = false;
  bool is_leaving_ = false;
  bool takes_logs_ = true;  // the launcher, by its last answer
  // destroyed, and so killed, before the folder goes
  std::vector<OwnProcess> processes_;
};

// Whether the run has ended. A folder that cannot be read says nothing.
bool IsOver(const HostAgentOptions& options) {
  try {
    return options.is_over();
  } catch (const std::exception& e) {
    spdlog::debug("the state of the run: {}", e.what());
    return false;
  }
}

}  // namespace

bool RunHostAgent(const HostAgentOptions& options, const StopSignal& stop) {
  Clock::TimePoint deadline = Clock::Real().Now() + options.join_timeout;
  Clock::TimePoint sure_of_end = Clock::Real().Now() + kSureOfEnd;
  std::string last_problem;
  while (Clock::Real().Now() < deadline) {
    std::string problem;
    try {
      Membership membership(options, stop, options.find_launcher());
      if (membership.Join()) {
        if (membership.Serve() != End::kLost) return true;
        deadline = Clock::Real().Now() + options.join_timeout;
        sure_of_end = Clock::Real().Now();
        last_problem.clear();
        continue;
      }
      problem = "no answer from the launcher";
    } catch (const IoError& e) {
      problem = e.what();
    } catch (const std::exception& e) {
      // files that a launcher is about to write, or a file system that stalls,
      // may be whole at the next look
      if (options.is_launcher_fixed) throw;
      problem = e.what();
    }
    if (Clock::Real().Now() >= sure_of_end && IsOver(options)) {
      spdlog::info("the run is over");
      return true;
    }
    if (problem != last_problem)
      spdlog::info("waiting for a launcher: {}", problem);
    last_problem = problem;
    for (int i = 0; i < 10; ++i) {
      if (stop.count() > 0 || HasEnded(options.lease_fd)) return true;
      std::this_thread::sleep_for(100ms);
    }
  }
  spdlog::error("no launcher found for {:.3g} s: {}",
                ToSeconds(options.join_timeout), last_problem);
  return false;
}

}  // namespace replicant::fleet
