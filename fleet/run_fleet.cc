#include "fleet/run_fleet.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <chrono>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/metrics/progress.h"
#include "core/rpc/server.h"
#include "fleet/backends/local.h"

namespace replicant::fleet {
namespace {

// Heartbeats and deadlines are looked at so often; the end of a process and a
// signal are noticed at once.
constexpr int kStepMs = 50;

// The server that heartbeats go to, in a thread of its own.
class HeartbeatServer {
 public:
  explicit HeartbeatServer(rpc::HeartbeatMonitor* monitor)
      : server_(context_, rpc::SupervisionProtocol()),
        endpoint_(Attach(monitor)),
        loop_("heartbeats",
              [this](const Thread::StopToken&) { server_.Run(); }) {}
  ~HeartbeatServer() { server_.Stop(); }

  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string Attach(rpc::HeartbeatMonitor* monitor) {
    monitor->AttachTo(server_);
    return server_.Bind("tcp://127.0.0.1:*");
  }

  rpc::ZmqContext context_;
  rpc::Server server_;
  const std::string endpoint_;
  Thread loop_;
};

// Waits until a process ends or a signal comes.
void AwaitEvent(const Supervisor& supervisor, const StopSignal& stop,
                int num_signals_seen) {
  std::vector<pollfd> fds;
  for (const int fd : supervisor.ExitFds()) fds.push_back({fd, POLLIN, 0});
  // stays readable: of use for the first signal only
  if (num_signals_seen == 0) fds.push_back({stop.fd(), POLLIN, 0});
  ::poll(fds.data(), fds.size(), kStepMs);
}

}  // namespace

RunResult RunFleet(const FleetRun& run, const StopSignal& stop,
                   RunFolder& folder, FleetStatus& status) {
  metrics::ProgressOptions progress_options;
  progress_options.plain_interval = std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(run.config.progress_interval_s));
  // made before the server's thread, which may log
  metrics::ProgressLine progress(progress_options);
  status.AddTo(progress, run.progress);

  rpc::HeartbeatMonitor monitor;
  const HeartbeatServer server(&monitor);
  LocalBackend backend;
  Supervisor supervisor({.config = run.config,
                         .heartbeat_endpoint = server.endpoint(),
                         .seed = run.seed},
                        run.roles, &folder, &backend, &monitor, &Clock::Real());

  int num_signals = 0;
  while (!supervisor.IsFinished()) {
    if (stop.count() > num_signals) {
      num_signals = stop.count();
      supervisor.RequestStop("stopped by a signal");
      if (num_signals > 1) supervisor.StopNow("stopped by a second signal");
    }
    supervisor.Step();
    status.Update(supervisor.Roles(), monitor.All(), supervisor.IsStopping(),
                  Clock::Real().Now());
    progress.Update();
    if (!supervisor.IsFinished()) AwaitEvent(supervisor, stop, num_signals);
  }
  RunResult result = supervisor.result();
  try {
    folder.SetStatus(result.status);
  } catch (const IoError& e) {
    result.problems.emplace_back(e.what());
  }
  return result;
}

}  // namespace replicant::fleet
