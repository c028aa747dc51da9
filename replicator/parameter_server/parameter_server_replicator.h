#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "replicator/replicator.h"

// Strategy `parameter_server`: each server holds a part of the variables and
// updates it. Workers pull variables, make a step and push gradients; a worker
// waits for the others only at the bound on staleness (StalenessGate). A worker
// is a group of `replicas_per_group` replicas, which make their steps together:
// in one process as in `in_graph`, or in `processes_per_group`, of which the
// first one talks to the servers.
//
// The step function is the same as for other strategies: servers run the part
// behind its primitives (replicator/parameter_server/step_split.h), with the
// same graph and kernels. One worker with one replica computes the bits of
// `single`.
//
// Between two steps, variables() of the first worker hold the servers' values.
// The first worker sends variables that a program wrote there to the servers
// before its next step, and all variables before its first step. Writes into
// another worker's variables() have no effect.
//
// A training lasts as long as its first worker. A worker that crashes and is
// started again joins again; its unfinished step is dropped.
namespace replicant::replicator {

// Worker `rank.index`. While a server is away it waits without end, and without
// an answer from one that is not, for ReplicationConfig::timeout_s. Once it was
// asked to stop it waits 2 s for a server that is away; from then on
// Step::Run() returns kTimeout, and variables() throws CommError until Stop().
std::unique_ptr<Replicator> MakeParameterWorker(
    const ReplicationConfig& config, uint64_t seed, const ProcessRank& rank,
    const kernels::BackendFactory& make_backend);

// A server. Its steps answer workers: Run() returns kTimeout at its deadline,
// and kEnd once the first worker has ended the training.
//
// Every server_checkpoint_interval_s, and in Stop(), the server saves its
// variables to `folder`/version-N and deletes the older version. A server that
// finds such a checkpoint at its start continues from it, and removes what a
// killed one has left unfinished. With an empty `folder` it saves nothing.
std::unique_ptr<Replicator> MakeParameterServer(
    const ReplicationConfig& config, uint64_t seed, int server,
    const std::filesystem::path& folder,
    const kernels::BackendFactory& make_backend);

}  // namespace replicant::replicator
