#pragma once

#include <cstdint>
#include <memory>

#include "replicator/replicator.h"

namespace replicant::replicator {

// Makes a replicator that builds the steps of a workload for one replica of
// `config` and declares their variables, which any strategy and backend share.
// It compiles nothing, so that a large step needs no memory; steps do not run:
// Run() and value() throw InvalidArgument. The variables lie in host memory,
// with their first values. No device of `config` need be there.
std::unique_ptr<Replicator> MakeVariableReplicator(
    const ReplicationConfig& config, uint64_t seed);

}  // namespace replicant::replicator
