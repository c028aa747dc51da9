#pragma once

#include <cstdint>
#include <memory>

#include "engine/kernels/backend.h"
#include "replicator/replicator.h"

namespace replicant::replicator {

// Whether this build has backend pjrt.
bool HasPjrt();

// Backend `pjrt`, for the strategies `single` and `in_graph`: each replica is a
// device of one PJRT client. XLA compiles a step once, as one program for all
// replicas, and collectives run on the devices.
//
// - Build() writes the step as a module of StableHLO
// (engine/export/stablehlo.h),
//   which the plugin of ReplicationConfig::pjrt compiles.
// - Variables stay on the devices between steps. variables() brings the first
//   replica's to the host; values that are written there go to all devices
//   before the next step.
// - Step::Run() hands over the batch and the random numbers, which the host's
//   CPU backend draws, and returns while the devices compute. Step::value()
//   waits for them. A step that fails is reported by the next call of the
//   replicator that waits for it, and its variables are lost.
//
// All replicas run the same program, so a step that is built differently on
// each of them, such as by ReplicaContext::MapGather() of pieces, is refused.
//
// Throws DeviceError if the build has no PJRT or the plugin cannot be used, and
// ConfigError if it has fewer devices than replicas.
std::unique_ptr<Replicator> MakePjrtReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend);

}  // namespace replicant::replicator
