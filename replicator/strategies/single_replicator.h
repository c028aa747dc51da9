#pragma once

#include <cstdint>
#include <memory>

#include "replicator/replicator.h"

namespace replicant::replicator {

// Strategy `single`: one replica, in which every primitive is the identity.
std::unique_ptr<Replicator> MakeSingleReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend);

}  // namespace replicant::replicator
