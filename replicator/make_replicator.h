#pragma once

#include <cstdint>
#include <memory>

#include "engine/kernels/backend.h"
#include "replicator/replication_config.h"
#include "replicator/replicator.h"

namespace replicant::replicator {

// `seed` draws the first values of variables and feeds random ops.
// `make_backend` is called once or more for each replica of this process.
// Throws what it throws, and ConfigError for processes that do not fit the
// strategy.
std::unique_ptr<Replicator> MakeReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const ProcessRank& rank = {},
    const kernels::BackendFactory& make_backend = kernels::MakeBackend);

}  // namespace replicant::replicator
