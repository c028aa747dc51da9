#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "core/replicator/replicator.h"

// Strategy `parameter_server`: servers hold the variables, each a part of them,
// and update them; workers pull what they need, make a step and push what they
// learned, without waiting for each other beyond a bound (StalenessGate). A
// worker is a group of `replicas_per_group` replicas of one process that make
// their steps together, as `in_graph` does.
//
// The step function is the same: what it does behind its primitives is the
// servers' (core/replicator/graph/step_split.h), by the same graph and kernels.
// With one worker and one replica it computes what `single` computes.
//
// variables() of the first worker are those of all servers between two steps;
// what is written there it gives to the servers before its next step, as it
// does with all of them before its first. Other workers' do not matter.
//
// A training goes on as long as its first worker does. One that ends abruptly
// and begins anew joins again; what was under way is left out.
namespace replicant::replicator {

std::unique_ptr<Replicator> MakeParameterWorker(
    const ReplicationConfig& config, uint64_t seed, int worker,
    const kernels::BackendFactory& make_backend);

// A server. Its steps serve others: Run() gives kTimeout at its deadline, and
// kEnd once the first worker has ended the training.
//
// Every server_checkpoint_interval_s it saves what it holds to
// `folder`/version-N, of which the newest is kept; it begins with that one if
// it is there. An empty folder is none.
std::unique_ptr<Replicator> MakeParameterServer(
    const ReplicationConfig& config, uint64_t seed, int server,
    const std::filesystem::path& folder,
    const kernels::BackendFactory& make_backend);

}  // namespace replicant::replicator
