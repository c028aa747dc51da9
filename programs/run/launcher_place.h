#pragma once

#include <functional>
#include <optional>
#include <string>

#include "replicator/replication_config.h"

namespace replicant::programs {

// The place of this process among those started by torchrun, mpirun, srun, or a
// launcher that sets TF_CONFIG.
struct LauncherPlace {
  std::string role = "worker";  // "worker" or "server"
  int index = 0;                // worker 0 leads
  int num_workers = 1;
  // Meeting point of the workers, "tcp://HOST:PORT"; empty if the launcher
  // names none.
  std::string rendezvous;
  std::string source;  // of these, for messages: "RANK and WORLD_SIZE"
};

// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> ProcessEnvironment(const char* name);

// Reads the first of these that is set. Returns nothing if none is, or if the
// launcher has started a single process:
//
//   TF_CONFIG                          cluster chief and worker, or ps; the
//                                      first worker's address
//   RANK, WORLD_SIZE                   torchrun; MASTER_ADDR:MASTER_PORT, or
//                                      the port after it if torchrun itself
//                                      listens there
//   OMPI_COMM_WORLD_RANK, ..._SIZE     OpenMPI
//   PMI_RANK, PMI_SIZE                 MPICH and Intel MPI
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS srun; the first host of the step, and a
//                                      port from the number of the job
//
// Throws ConfigError for values that are malformed or inconsistent.
std::optional<LauncherPlace> FindLauncherPlace(
    const Environment& environment = ProcessEnvironment);

// The place of a learner whose processes meet without MPI. Returns nothing for
// a role of a fleet, which already has its place, or without a launcher. Also
// throws ConfigError if the launcher has started another number of workers than
// `replication` has; replication.min_processes allows fewer.
std::optional<LauncherPlace> PlaceOfLearner(
    const replicator::ReplicationConfig& replication);

}  // namespace replicant::programs
