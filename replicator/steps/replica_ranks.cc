#include "replicator/steps/replica_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "replicator/comm/host_addresses.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/comm/tcp_communicator.h"
#include "replicator/comm/thread_communicator.h"
#include "replicator/steps/processes.h"

namespace replicant::replicator {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// What processes must have alike, or their calls would differ.
std::string DescribeGroup(const ReplicationConfig& c) {
  const bool is_host = c.collectives == ReplicationConfig::Collectives::kHost;
  return fmt::format(
      "strategy {}, replicas {}, replicas_per_process {}, wire {}, top_k {}, "
      "bucket_mib {}, accumulation_steps {}, logical_devices {}, collectives "
      "{}",
      c.strategy->name, c.replicas, c.replicas_per_process,
      DTypeName(c.gradient_format), c.top_k, c.bucket_mib, c.accumulation_steps,
      c.logical_devices, is_host ? "host" : "device");
}

comm::LocalRanks MakeTcpRanks(const ReplicationConfig& config, int process,
                              const comm::CommunicatorOptions& options) {
  if (config.num_processes() > 1 &&
      config.rendezvous == ReplicationConfig::kAuto) {
    throw ConfigError(
        "replication.rendezvous: auto is for the programs, which know a folder "
        "of the run; allowed here: tcp://HOST:PORT, or a file");
  }
  const char* const key = std::getenv(kRendezvousKey);
  return comm::MakeTcpRanks(config.replicas_per_process,
                            {.process = process,
                             .num_processes = config.num_processes(),
                             .rendezvous = config.rendezvous,
                             .key = key == nullptr ? "" : key,
                             .description = DescribeGroup(config)},
                            options);
}

comm::LocalRanks MakeMpiRanks(const ReplicationConfig& config,
                              const comm::CommunicatorOptions& options) {
  comm::LocalRanks ranks =
      comm::MakeMpiRanks(config.replicas_per_process, options);
  const int num_processes = config.num_processes();
  if (ranks.processes->size() != num_processes) {
    throw ConfigError(
        fmt::format("replication: between_graph of {} replicas, {} in each "
                    "process, wants {} processes, not {}; hint: mpirun -n {}",
                    config.replicas, config.replicas_per_process, num_processes,
                    ranks.processes->size(), num_processes));
  }
  return ranks;
}

}  // namespace

comm::CommunicatorOptions CommunicatorOptionsOf(
    const ReplicationConfig& config) {
  return {.timeout = Milliseconds(config.timeout_s),
          .heartbeat_interval = Milliseconds(config.heartbeat_interval_s),
          .heartbeat_timeout = Milliseconds(config.heartbeat_timeout_s)};
}

comm::LocalRanks MakeReplicaRanks(const ReplicationConfig& config,
                                  int process) {
  const comm::CommunicatorOptions options = CommunicatorOptionsOf(config);
  if (!config.strategy->has_processes) {
    return {.processes = nullptr,
            .ranks = comm::MakeThreadCommunicators(config.replicas, options)};
  }
  return config.uses_mpi() ? MakeMpiRanks(config, options)
                           : MakeTcpRanks(config, process, options);
}

int FirstReplicaOnHost(const ReplicationConfig& config,
                       comm::Communicator* between,
                       const std::function<int()>& num_visible) {
  // no other backend asks for it
  if (between == nullptr || config.backend != "cuda") return 0;
  const std::vector<std::string> hosts =
      Processes(between).Gather(comm::NetworkName());
  const auto own = static_cast<size_t>(between->rank());
  const auto before =
      std::count(hosts.begin(), hosts.begin() + between->rank(), hosts[own]);
  // a launcher may show each process its own devices alone
  if (config.devices.empty() && num_visible() == config.replicas_per_process) {
    return 0;
  }
  return static_cast<int>(before) * config.replicas_per_process;
}

}  // namespace replicant::replicator
