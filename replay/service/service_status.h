#pragma once

#include <string>

#include "base/rpc/server.h"
#include "replay/service/service.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// The status of a service as one JSON object; docs/replay_protocol.md lists the
// fields. `checkpoints` is null for a service without checkpoints.
std::string ToJson(const ShardStatus& shard, const ServiceCounts& counts,
                   const ServiceRates& rates, const rpc::ServerMetrics& server,
                   const CheckpointStatus* checkpoints);

// Returns the status as a few lines of text for people. Throws IoError unless
// `json` is from ToJson().
std::string StatusText(const std::string& json);

}  // namespace replicant::replay
