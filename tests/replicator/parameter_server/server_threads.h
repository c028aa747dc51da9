#pragma once

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/fs.h"
#include "base/thread.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"

// Parameter servers in threads of a test.
namespace replicant::replicator {

// A place for sockets and checkpoints, as long as it lives.
class ServerFolder {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }

  // So many servers here, and replicas that are a worker each.
  ReplicationConfig Config(int num_servers, int replicas, int64_t staleness,
                           const char* backend = "reference") const {
    ReplicationConfig config{.strategy = &Strategy::kParameterServer,
                             .replicas = replicas,
                             .backend = backend,
                             .timeout_s = 120.0};
    config.servers.clear();
    for (int i = 0; i < num_servers; ++i) {
      config.servers.push_back(
          fmt::format("ipc://{}/server-{}", path().string(), i));
    }
    config.staleness = staleness;
    return config;
  }

 private:
  TemporaryFolder folder_;
};

// A server that serves until it is destroyed or the training ends.
class ServerThread {
 public:
  ServerThread(const ReplicationConfig& config, int server,
               const InputFn& input_fn, const StepFn& step_fn,
               const std::filesystem::path& folder = {})
      : thread_("server", [=](const Thread::StopToken& stop) {
          const auto replicator = MakeReplicator(
              config, /*seed=*/3,
              {.is_server = true, .index = server, .folder = folder});
          const auto input = replicator->MakeInput(input_fn);
          const auto step = replicator->Build(*input, step_fn);
          const auto patience = std::chrono::milliseconds(20);
          while (!stop.IsStopRequested() &&
                 step->Run(Clock::Real().Now() + patience) !=
                     NextResult::kEnd) {
          }
          replicator->Stop();
        }) {}

 private:
  Thread thread_;
};

// All servers of a configuration.
inline std::vector<std::unique_ptr<ServerThread>> StartServers(
    const ReplicationConfig& config, const InputFn& input_fn,
    const StepFn& step_fn) {
  std::vector<std::unique_ptr<ServerThread>> servers;
  for (size_t i = 0; i < config.servers.size(); ++i) {
    servers.push_back(std::make_unique<ServerThread>(
        config, static_cast<int>(i), input_fn, step_fn));
  }
  return servers;
}

}  // namespace replicant::replicator
