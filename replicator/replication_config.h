#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/config/reader.h"
#include "base/tensor/dtype.h"
#include "engine/kernels/backend.h"
#include "replicator/strategy.h"

namespace replicant::replicator {

// Section `replication.pjrt`: backend pjrt.
struct PjrtConfig {
  // File of the plugin.
  std::string plugin;
  // Options of the plugin's client, "NAME=VALUE" each.
  std::vector<std::string> options;

  static PjrtConfig Read(config::Reader& reader);
};

// Section `replication.cuda_autotune`: timing of library plans, backend cuda.
struct CudaAutotuneConfig {
  // Whether plans are timed, and the fastest taken.
  bool is_enabled = false;
  // Folder of the file that keeps them; empty: PlanCache::DefaultFolder().
  std::string cache;

  static CudaAutotuneConfig Read(config::Reader& reader);
};

// Section `replication`: the strategy of the replicas and their devices.
struct ReplicationConfig {
  const Strategy* strategy = &Strategy::kSingle;  // never null
  // Number of replicas in all processes together.
  int replicas = 1;
  // "cpu", "cuda", "reference", "pjrt"
  std::string backend = "cpu";
  PjrtConfig pjrt;
  CudaAutotuneConfig cuda_autotune;
  // Backend cuda: whether a step is launched as graphs.
  bool cuda_graphs = true;
  // On a device, strategies single, in_graph and between_graph: whether the
  // next batch is taken and sent while a step computes.
  bool read_ahead = true;
  // Devices among which the ops of one replica are divided. On the CPU each is
  // a group of processors.
  int logical_devices = 1;
  // CPU threads of one logical device.
  int threads = 1;
  // Batches per update. Every replica adds up their gradients, and the sum is
  // reduced once.
  int accumulation_steps = 1;
  // The number format of f32 gradients between replicas: kF32 or kBF16.
  DType gradient_format = DType::kF32;
  // If not 0, a replica sends only this fraction of a gradient's elements, the
  // largest, and adds the rest to its next gradient.
  double top_k = 0.0;
  // Gradients are reduced as soon as this many MiB of them are computed.
  int bucket_mib = 4;
  // Devices of the replicas of one host, in turn; empty: replica i of the host
  // takes device i. Not for a backend in host memory.
  std::vector<int> devices;
  // Where replicas on devices exchange tensors: kDevice is NCCL, or a kernel
  // for replicas of one device; kHost copies them to the host and back.
  enum class Collectives { kDevice, kHost };
  Collectives collectives = Collectives::kDevice;
  // Seconds before a collective fails because a replica is missing.
  double timeout_s = 300.0;
  // between_graph: replicas in each process.
  int replicas_per_process = 1;
  // between_graph: how processes reach each other. mpirun starts them for kMpi.
  enum class Communicator { kMpi, kTcp };
  Communicator communicator = Communicator::kMpi;
  // kTcp: where processes meet, comm::TcpGroup::rendezvous. The programs
  // replace kAuto by a file in the run's folder.
  static constexpr const char* kAuto = "auto";
  std::string rendezvous = kAuto;
  // kTcp: the fewest processes with which a group continues after losing
  // others; 0: all of them.
  int min_processes = 0;
  // Factor on the optimizers' learning rates. Not a key of the section:
  // learner::LearnerOfProcesses() sets it for a group that has lost processes.
  double learning_rate_scale = 1.0;
  // between_graph: seconds between the heartbeats of a process, and seconds of
  // silence after which the others end. A timeout of 0 turns heartbeats off.
  double heartbeat_interval_s = 0.2;
  double heartbeat_timeout_s = 10.0;

  // parameter_server: one address per server.
  std::vector<std::string> servers = {"auto"};
  // parameter_server: replicas in each group, and processes among which they
  // are divided.
  int replicas_per_group = 1;
  int processes_per_group = 1;
  // parameter_server: maximum number of updates by other workers between a
  // gradient's pull and its push.
  int64_t staleness = 4;
  // parameter_server: updates of a worker from one pull to the next, and
  // updates whose gradients are pushed as one sum: n_fetch and n_push of
  // Downpour SGD (Dean et al. 2012). With more than 1 a worker also updates its
  // own copy of the variables.
  int fetch_interval = 1;
  int push_interval = 1;
  double server_checkpoint_interval_s = 10.0;
  // parameter_server: file of the key pair that servers and workers hold;
  // empty: none. Not a key of the section: programs set it to the run's.
  std::string key_file;

  // Options for the backend of replica `number` of its host. `tuned_plans` is
  // from MakePlanCache(); null for a backend that times nothing.
  kernels::BackendOptions backend_options(
      int number, std::shared_ptr<kernels::PlanCache> tuned_plans) const {
    return {.num_threads = threads,
            .device_index = DeviceOf(number),
            .has_recordings = cuda_graphs,
            .tuned_plans = std::move(tuned_plans)};
  }
  // For all replicas of a process; null without cuda_autotune.
  std::shared_ptr<kernels::PlanCache> MakePlanCache() const;
  // Whether a PJRT plugin runs the steps, not a kernels::Backend.
  bool has_pjrt() const { return backend == "pjrt"; }
  // The backend of the policies of actors and evaluators, which run where there
  // may be no device.
  std::string policy_backend() const {
    return backend == "reference" ? backend : "cpu";
  }
  // The device of replica `number` of its host.
  int DeviceOf(int number) const;
  // Number of replicas that share a batch.
  int replicas_of_group() const;
  // Number of processes of between_graph; 1 for other strategies.
  int num_processes() const;
  // Whether the group goes on after it has lost a process for good.
  bool is_elastic() const {
    return min_processes > 0 && min_processes < num_processes();
  }
  bool uses_mpi() const {
    return strategy->has_processes && communicator == Communicator::kMpi;
  }
  // Number of processes that are started one by one and make steps, of which
  // the first is the learner.
  int num_workers() const;
  // Number of groups, each with its own batches.
  int num_groups() const { return replicas / replicas_of_group(); }

  // `strategies` are the allowed values of `strategy`.
  static ReplicationConfig Read(
      config::Reader& reader,
      const StrategyRegistry& strategies = StrategyRegistry::BuiltIn());
};

}  // namespace replicant::replicator
