#pragma once

#include <string>

#include "core/rpc/server.h"
#include "replay/service/service.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// The status of a service as one JSON object; docs/replay_protocol.md lists the
// fields.
std::string ToJson(const ShardStatus& shard, const ServiceCounts& counts,
                   const ServiceRates& rates, const rpc::ServerMetrics& server);

// The same for people, a few lines of text. `json` is what ToJson() made.
// Throws IoError if it is not.
std::string StatusText(const std::string& json);

}  // namespace replicant::replay
