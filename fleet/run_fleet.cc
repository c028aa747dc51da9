#include "fleet/run_fleet.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/rpc/group_key.h"
#include "base/rpc/server.h"
#include "base/thread.h"
#include "fleet/backends/hosts.h"
#include "fleet/backends/local.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/run_watch.h"
#include "fleet/scale_orders.h"

namespace replicant::fleet {
namespace {

// Interval at which heartbeats and deadlines are checked. The end of a process
// or a signal ends the wait at once.
constexpr int kStepMs = 50;
// Hosts report four times a second.
constexpr auto kHostPatience = std::chrono::seconds(3);
// Maximum number of processes and agents that talk to the fleet: as many as a
// process may have connections (base/file_limit.h).
constexpr size_t kMaxPeers = 65'536;
// Longest wait for the disk at the end.
constexpr auto kDiskPatience = std::chrono::seconds(10);

// The server that receives heartbeats, on its own thread.
class HeartbeatServer {
 public:
  // If there is a pool, hosts join at `bind`.
  HeartbeatServer(HeartbeatMonitor* monitor, HostPool* pool,
                  ScaleOrders* orders, const std::string& bind,
                  const rpc::GroupKey& key)
      : scale_orders_(*orders),
        guard_(key.MakeGuard(context_)),
        server_(context_, SupervisionProtocol(), WithKey(key)),
        endpoint_(Attach(monitor, pool, bind)),
        loop_("heartbeats",
              [this](const Thread::StopToken&) { server_.Run(); }) {}
  ~HeartbeatServer() { server_.Stop(); }

  const std::string& endpoint() const { return endpoint_; }
  // How often the fleet was asked to end the run, and who asked last.
  std::pair<int, std::string> StopRequests() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return {num_stop_requests_, stopped_by_};
  }
  // Rethrows the exception that has ended the loop.
  void Check() {
    if (!loop_.IsRunning()) loop_.Join();
  }

 private:
  static rpc::ServerOptions WithKey(const rpc::GroupKey& key) {
    rpc::ServerOptions options;
    options.socket.curve = key.server_role();
    options.max_peers = kMaxPeers;
    return options;
  }
  std::string Attach(HeartbeatMonitor* monitor, HostPool* pool,
                     const std::string& bind) {
    monitor->AttachTo(server_);
    server_.Handle(
        kStopKind, [this](rpc::Request& request, rpc::Responder responder) {
          const auto stop = rpc::DecodeMessage<StopRequest>(request.payload);
          {
            MutexLock lock(mutex_);
            ++num_stop_requests_;
            stopped_by_ = stop.who;
          }
          responder.Reply({});
        });
    server_.Handle(kScaleKind,
                   [this](rpc::Request& request, rpc::Responder responder) {
                     responder.Reply(rpc::EncodeMessage(scale_orders_.Take(
                         rpc::DecodeMessage<ScaleRequest>(request.payload))));
                   });
    if (pool != nullptr) pool->AttachTo(server_);
    return server_.Bind(bind);
  }

  ScaleOrders& scale_orders_;
  mutable Mutex mutex_;
  int num_stop_requests_ GUARDED_BY(mutex_) = 0;
  std::string stopped_by_ GUARDED_BY(mutex_);
  rpc::ZmqContext context_;
  const std::unique_ptr<rpc::ZapHandler> guard_;
  rpc::Server server_;
  const std::string endpoint_;
  Thread loop_;
};

// Passes signals and requests of hosts on to the supervisor: the first drains
// the roles, the second kills them.
class StopOrders {
 public:
  explicit StopOrders(const StopSignal* stop) : stop_(*stop) {}

  // `requests` is HeartbeatServer::StopRequests().
  void Pass(const std::pair<int, std::string>& requests,
            Supervisor* supervisor) {
    if (stop_.count() > num_signals_) {
      num_signals_ = stop_.count();
      supervisor->RequestStop("stopped by a signal");
      if (num_signals_ > 1) {
        supervisor->StopNow("stopped by a second signal");
      }
    }
    const auto& [count, who] = requests;
    if (count <= num_requests_) return;
    num_requests_ = count;
    supervisor->RequestStop(fmt::format("stopped by {}", who));
    if (count > 1) supervisor->StopNow(fmt::format("killed by {}", who));
  }

  int num_signals() const { return num_signals_; }

 private:
  const StopSignal& stop_;
  int num_signals_ = 0;
  int num_requests_ = 0;
};

// Waits until a process ends or a signal comes.
void AwaitEvent(const Supervisor& supervisor, const StopSignal& stop,
                int num_signals_seen) {
  std::vector<pollfd> fds;
  for (const int fd : supervisor.ExitFds()) fds.push_back({fd, POLLIN, 0});
  // after the first signal it stays readable and would end every wait
  if (num_signals_seen == 0) fds.push_back({stop.fd(), POLLIN, 0});
  ::poll(fds.data(), fds.size(), kStepMs);
}

// Gives up lost hosts, and names hosts that have not joined yet.
void UpdateHosts(bool have_all_a_place, HostPool* pool, MissingHosts* missing) {
  pool->Update(have_all_a_place);
  if (missing->IsComplete()) return;
  std::vector<std::string> names;
  for (const HostPool::HostView& host : pool->Hosts()) {
    names.push_back(host.name);
  }
  if (const auto line = missing->Update(names, Clock::Real().Now())) {
    spdlog::info("{}", *line);
  }
}

// Tells the hosts that the run is over.
void DismissHosts(HostPool& pool, const std::string& why) {
  pool.Dismiss(why);
  const Clock::TimePoint deadline = Clock::Real().Now() + kHostPatience;
  while (!pool.IsDismissed() && Clock::Real().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kStepMs));
  }
}

}  // namespace

RunResult RunFleet(const FleetRun& run, const StopSignal& stop,
                   RunFolder& folder, FleetStatus& status) {
  // made before the heartbeat server's thread, which may log
  RunWatch watch({.progress = {.plain_interval =
                                   FromSeconds(run.config.progress_interval_s)},
                  .fields = run.progress,
                  .curve_axis = run.curve_axis,
                  .curves = run.curves,
                  .metrics_address = run.config.metrics_address},
                 &folder, &status);
  HeartbeatMonitor monitor;
  std::optional<HostPool> pool;
  if (run.hosts) pool.emplace(run.hosts->pool);
  ScaleOrders scale_orders(&run.scalable,
                           static_cast<int64_t>(run.roles.size()));
  HeartbeatServer server(&monitor, pool ? &*pool : nullptr, &scale_orders,
                         run.hosts ? run.hosts->endpoint : "tcp://127.0.0.1:*",
                         rpc::GroupKey::FromFile(run.key_file));
  const std::unique_ptr<Backend> backend =
      pool ? std::unique_ptr<Backend>(std::make_unique<HostsBackend>(&*pool))
           : std::make_unique<LocalBackend>();
  Supervisor supervisor({.config = run.config,
                         .heartbeat_endpoint = server.endpoint(),
                         .key_file = run.key_file,
                         .seed = run.seed},
                        run.roles, &folder, backend.get(), &monitor,
                        &Clock::Real());

  std::optional<HostLauncher> launcher;
  if (run.hosts && !run.hosts->launched.empty()) {
    launcher.emplace(run.hosts->launched,
                     MakeTicket(server.endpoint(), run.key_file),
                     folder.path() / "logs", &*pool);
    for (const auto& [host, log] : launcher->Logs()) {
      watch.logs().FollowNew("host " + host, log);
    }
  }
  const WatchedRun watched{.supervisor = &supervisor,
                           .monitor = &monitor,
                           .pool = pool ? &*pool : nullptr,
                           .endpoint = server.endpoint()};
  StopOrders orders(&stop);
  MissingHosts missing(
      run.hosts ? run.hosts->expected : std::vector<MissingHosts::Host>(),
      server.endpoint(), Clock::Real().Now());
  bool has_started = false;
  while (!supervisor.IsFinished()) {
    orders.Pass(server.StopRequests(), &supervisor);
    server.Check();
    scale_orders.CarryOut(&supervisor);
    if (pool) {
      UpdateHosts(supervisor.HaveAllAPlace(), &*pool, &missing);
    }
    if (launcher && !supervisor.IsStopping()) launcher->Step();
    supervisor.Step();
    if (!has_started && supervisor.HasStarted()) {
      has_started = true;
      folder.AdoptConfig();
    }
    watch.Update(watched);
    if (run.copy != nullptr) run.copy->Step(Clock::Real().Now());
    if (!supervisor.IsFinished()) {
      AwaitEvent(supervisor, stop, orders.num_signals());
    }
  }
  watch.AddLastPoint(watched);
  RunResult result = supervisor.result();
  const bool goes_on =
      stop.is_termination() ||
      (pool && run.hosts->is_restarted && result.status == RunStatus::kFailed);
  if (pool && !goes_on) {
    DismissHosts(*pool, result.message.substr(0, result.message.find('\n')));
  }
  // a role may have ended before it was seen to run
  if (result.status == RunStatus::kComplete) folder.AdoptConfig();
  watch.WriteLastReport(watched);
  // a resume that a role refuses changes nothing of the run
  if (result.is_mistake && !has_started) {
    folder.RestoreStatus();
  } else {
    folder.SetStatus(result.status, /*is_final=*/!goes_on);
  }
  folder.AwaitDisk(kDiskPatience);
  return result;
}

}  // namespace replicant::fleet
