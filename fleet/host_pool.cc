#include "fleet/host_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace replicant::fleet {
namespace {

// An agent reports four times a second. After this long without a report it may
// be cut off, and gets no new process.
constexpr auto kHeard = std::chrono::seconds(3);
// The agent counts from the last answer that it got, the pool from the last
// report, which is earlier. The difference is the time to end the processes.
constexpr auto kMargin = std::chrono::seconds(5);

// Writes part of a log at its offset, so that a repeated report writes the same
// bytes again.
void WriteAt(const std::filesystem::path& file, uint64_t offset,
             const std::string& bytes) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done,
                 static_cast<off_t>(offset + done));
    if (written <= 0) break;  // a full disk loses lines of logs
    done += static_cast<size_t>(written);
  }
  ::close(fd);
}

}  // namespace

// A process as its supervisor sees it.
class HostPool::HostProcess final : public RoleProcess {
 public:
  HostProcess(HostPool* pool, std::shared_ptr<ProcessState> state,
              ProcessKey key)
      : pool_(*pool), state_(std::move(state)), key_(std::move(key)) {}
  ~HostProcess() override {
    if (!Poll()) Signal(SIGKILL);
  }

  std::optional<ExitStatus> Poll() override {
    MutexLock lock(pool_.mutex_);
    return state_->status;
  }
  void Signal(int signal_number) override {
    pool_.Order(*state_, key_, signal_number);
  }
  int fd() const override { return -1; }
  bool IsReachable() const override {
    MutexLock lock(pool_.mutex_);
    return state_->agent != nullptr && pool_.IsHeard(*state_->agent);
  }
  bool IsLost() const override {
    MutexLock lock(pool_.mutex_);
    return state_->is_lost;
  }
  std::string host() const override { return state_->host; }

 private:
  HostPool& pool_;
  const std::shared_ptr<ProcessState> state_;
  const ProcessKey key_;
};

HostPool::HostPool(Options options)
    : options_(std::move(options)), disk_("host-logs") {}

void HostPool::AttachTo(rpc::Server& server) {
  server.Handle(kJoinKind,
                [this](rpc::Request& request, rpc::Responder responder) {
                  const auto join = JoinRequest::Decode(request.payload);
                  responder.Reply(rpc::EncodeMessage(Join(join)));
                });
  server.Handle(
      kReportKind, [this](rpc::Request& request, rpc::Responder responder) {
        const auto report = rpc::DecodeMessage<AgentReport>(request.payload);
        responder.Reply(rpc::EncodeMessage(Report(report)));
      });
}

JoinReply HostPool::Join(const JoinRequest& request) {
  MutexLock lock(mutex_);
  if (dismissed_because_) return {.refusal = *dismissed_because_, .files = {}};
  if (!agents_.contains(request.agent)) {
    if (const auto earlier = agent_of_host_.find(request.host);
        earlier != agent_of_host_.end()) {
      Forget(earlier->second, "was replaced by a new agent");
    }
  }
  auto [found, is_new] = agents_.try_emplace(request.agent);
  Agent& agent = found->second;
  agent.heard_at = options_.clock->Now();
  if (is_new) {
    agent.id = request.agent;
    agent.host = request.host;
    agent.role = request.role;
    agent.slots = request.slots;
    if (agent.slots == 0) {
      agent.slots = std::max<int64_t>(
          1, request.processors / options_.processors_per_process);
    }
    agent_of_host_[agent.host] = agent.id;
    rooms_[agent.role].insert(RoomOf(agent));
    spdlog::info("host {} joins with room for {} of role {}", agent.host,
                 agent.slots, agent.role);
  }
  return {.refusal = {},
          .timeout_s = ToSeconds(options_.timeout),
          .files = options_.files};
}

ReportReply HostPool::Report(const AgentReport& report) {
  using Verdict = ReportReply::Verdict;
  MutexLock lock(mutex_);
  const auto found = agents_.find(report.agent);
  if (found == agents_.end()) {
    return dismissed_because_
               ? ReportReply{Verdict::kLeave, *dismissed_because_, {}}
               : ReportReply{Verdict::kJoinAgain,
                             "this launcher does not know the host",
                             {}};
  }
  Agent& agent = found->second;
  const Clock::TimePoint now = options_.clock->Now();
  if (!IsHeard(agent)) {
    spdlog::info("host {} is back after {:.0f} s of silence", agent.host,
                 ToSeconds(now - agent.heard_at));
  }
  agent.heard_at = now;
  const bool takes_logs = KeepLogs(agent, report);
  for (const AgentProcess& process : report.processes) {
    if (!process.has_ended) continue;
    const auto ended = agent.processes.find({process.id, process.incarnation});
    if (ended == agent.processes.end()) continue;
    ended->second->status = ExitStatus{process.code, process.signal};
    ended->second->agent = nullptr;
    ChangeRoom(agent, [&] { agent.processes.erase(ended); });
  }
  std::erase_if(agent.orders, [&](const AgentOrder& order) {
    return order.number <= report.last_order;
  });
  if (report.is_leaving) {
    Forget(report.agent, "leaves");
    return {Verdict::kLeave, "the host asked to leave", {}, takes_logs};
  }
  if (dismissed_because_) {
    agent.is_told_to_leave = true;
    return {Verdict::kLeave, *dismissed_because_, {}, takes_logs};
  }
  if (options_.idle_timeout.count() > 0 && agent.not_needed_since &&
      agent.processes.empty() &&
      now - *agent.not_needed_since >= options_.idle_timeout) {
    Forget(report.agent, "is not needed");
    return {Verdict::kLeave,
            "the host is not needed: other hosts run all processes of the run",
            {},
            takes_logs};
  }
  return {Verdict::kGoOn, "", agent.orders, takes_logs};
}

bool HostPool::KeepLogs(const Agent& agent, const AgentReport& report) {
  if (*num_waiting_bytes_ >= kMaxLogBytes) return false;
  for (const LogChunk& chunk : report.logs) {
    const auto found = agent.processes.find({chunk.id, chunk.incarnation});
    if (found == agent.processes.end() || found->second->log.empty()) continue;
    const auto size = static_cast<int64_t>(chunk.bytes.size());
    *num_waiting_bytes_ += size;
    static_cast<void>(disk_.Post([file = found->second->log,
                                  offset = chunk.offset, bytes = chunk.bytes,
                                  size, num_waiting = num_waiting_bytes_] {
      WriteAt(file, offset, bytes);
      *num_waiting -= size;
    }));
  }
  return true;
}

bool HostPool::IsHeard(const Agent& agent) const {
  return options_.clock->Now() - agent.heard_at <= kHeard;
}

std::pair<int64_t, uint64_t> HostPool::RoomOf(const Agent& agent) {
  return {static_cast<int64_t>(agent.processes.size()) - agent.slots, agent.id};
}

void HostPool::ChangeRoom(Agent& agent, const std::function<void()>& change) {
  Room& room = rooms_[agent.role];
  room.erase(RoomOf(agent));
  change();
  room.insert(RoomOf(agent));
}

const HostPool::Agent* HostPool::FindRoom(const RoleId& id) const {
  const Agent* best = nullptr;
  // a host offers room for a role, or for one process
  for (const std::string& offered : {id.role, id.ToString()}) {
    const auto room = rooms_.find(offered);
    if (room == rooms_.end()) continue;
    for (const auto& [places, number] : room->second) {
      if (places >= 0) break;
      const Agent& agent = agents_.at(number);
      if (!IsHeard(agent)) continue;
      if (best == nullptr || RoomOf(agent) < RoomOf(*best)) best = &agent;
      break;
    }
  }
  return best;
}

bool HostPool::HasRoom(const RoleId& id) const {
  MutexLock lock(mutex_);
  return !dismissed_because_ && FindRoom(id) != nullptr;
}

std::unique_ptr<RoleProcess> HostPool::Start(
    const RoleId& id, uint32_t incarnation,
    const std::vector<std::string>& arguments,
    const std::filesystem::path& log) {
  MutexLock lock(mutex_);
  const Agent* const found = FindRoom(id);
  if (found == nullptr) return nullptr;
  Agent& agent = agents_.at(found->id);
  const ProcessKey key = {id, incarnation};
  auto state = std::make_shared<ProcessState>();
  state->host = agent.host;
  state->log = log;
  state->agent = &agent;
  ChangeRoom(agent, [&] { agent.processes[key] = state; });
  agent.orders.push_back({.number = ++agent.last_order,
                          .kind = AgentOrder::Kind::kStart,
                          .id = id,
                          .incarnation = incarnation,
                          .signal = 0,
                          .arguments = arguments});
  return std::make_unique<HostProcess>(this, std::move(state), key);
}

void HostPool::Order(const ProcessState& state, const ProcessKey& key,
                     int signal_number) {
  MutexLock lock(mutex_);
  if (state.agent == nullptr) return;
  state.agent->orders.push_back({.number = ++state.agent->last_order,
                                 .kind = AgentOrder::Kind::kSignal,
                                 .id = key.first,
                                 .incarnation = key.second,
                                 .signal = signal_number,
                                 .arguments = {}});
}

void HostPool::Forget(uint64_t id, const std::string& why) {
  const auto found = agents_.find(id);
  const Agent& agent = found->second;
  if (agent.processes.empty()) {
    spdlog::info("host {} {}; it ran no process", agent.host, why);
  } else {
    spdlog::warn(
        "host {} {}; its {} processes restart on other hosts when there is "
        "room",
        agent.host, why, agent.processes.size());
  }
  for (const auto& [key, state] : agent.processes) {
    state->is_lost = true;
    state->status = ExitStatus{-1, SIGKILL};
    state->agent = nullptr;
  }
  rooms_[agent.role].erase(RoomOf(agent));
  agent_of_host_.erase(agent.host);
  agents_.erase(found);
}

void HostPool::Update(bool have_all_a_place) {
  MutexLock lock(mutex_);
  const Clock::TimePoint now = options_.clock->Now();
  std::vector<uint64_t> lost;
  for (auto& [id, agent] : agents_) {
    if (now - agent.heard_at > options_.timeout + kMargin) lost.push_back(id);
    if (!have_all_a_place || !agent.processes.empty()) {
      agent.not_needed_since.reset();
    } else if (!agent.not_needed_since) {
      agent.not_needed_since = now;
    }
  }
  for (const uint64_t id : lost) {
    Forget(id, fmt::format("is lost: silent for more than {:.3g} s",
                           ToSeconds(options_.timeout)));
  }
}

void HostPool::Lose(const std::string& host, const std::string& why) {
  MutexLock lock(mutex_);
  const auto found = agent_of_host_.find(host);
  if (found != agent_of_host_.end()) Forget(found->second, "is lost: " + why);
}

void HostPool::Dismiss(const std::string& why) {
  MutexLock lock(mutex_);
  dismissed_because_ = why;
}

bool HostPool::IsDismissed() const {
  MutexLock lock(mutex_);
  return dismissed_because_ &&
         std::ranges::all_of(agents_, [this](const auto& entry) {
           return entry.second.is_told_to_leave || !IsHeard(entry.second);
         });
}

std::vector<HostPool::HostView> HostPool::Hosts() const {
  MutexLock lock(mutex_);
  std::vector<HostView> views;
  for (const auto& [id, agent] : agents_) {
    views.push_back(
        {.name = agent.host,
         .role = agent.role,
         .slots = agent.slots,
         .num_processes = static_cast<int64_t>(agent.processes.size()),
         .silent_s = ToSeconds(options_.clock->Now() - agent.heard_at)});
  }
  // their ids are random
  std::ranges::stable_sort(views, {}, &HostView::name);
  return views;
}

}  // namespace replicant::fleet
