#include "replicator/comm/tcp_communicator.h"

#include <fmt/format.h>

#include "base/error.h"
#include "replicator/comm/process_ranks.h"
#include "replicator/comm/tcp_exchange.h"

namespace replicant::comm {

LocalRanks MakeTcpRanks(int count, const TcpGroup& group,
                        const CommunicatorOptions& options) {
  if (group.process < 0 || group.process >= group.num_processes) {
    throw ConfigError(fmt::format("tcp: no rank {}; allowed: 0 to {}",
                                  group.process, group.num_processes - 1));
  }
  if (group.num_processes > 1 && group.rendezvous.empty()) {
    throw ConfigError(
        "tcp: several processes need a rendezvous; allowed: tcp://HOST:PORT, "
        "or a file");
  }
  return MakeLocalRanks(TcpExchange::OfGroup(group, options), count);
}

}  // namespace replicant::comm
