#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/replicator/replication_config.h"

namespace replicant::programs {

// Where a foreign launcher has put this process: torchrun, mpirun, srun, or
// whatever sets TF_CONFIG.
struct LauncherPlace {
  std::string role = "worker";  // "worker" or "server"
  int index = 0;                // worker 0 leads
  int num_workers = 1;
  // Where the workers may meet, "tcp://HOST:PORT"; empty if the launcher names
  // no place.
  std::string rendezvous;
  std::string source;  // of these, for messages: "RANK and WORLD_SIZE"
};

// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> ProcessEnvironment(const char* name);

// The first of these that is there, and nothing if none is or if the launcher
// has started one process alone:
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
// Throws ConfigError for values that cannot be read or do not fit each other.
std::optional<LauncherPlace> FindLauncherPlace(
    const Environment& environment = ProcessEnvironment);

// The place of a learner whose processes meet without MPI; nothing if it is a
// role of a fleet, which has given it a place, or if no launcher has. Throws
// ConfigError, too, if the launcher has started another number of workers than
// `replication` has; replication.min_processes allows fewer.
std::optional<LauncherPlace> PlaceOfLearner(
    const replicator::ReplicationConfig& replication);

}  // namespace replicant::programs
