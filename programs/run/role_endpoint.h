#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fleet/port_claim.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "programs/run/run_config.h"

// Addresses that processes of a run choose themselves: a parameter server and
// the inference server on a host that joins for them, if their key is "auto".
// Heartbeats carry the address to the supervisor, and the answers carry it to
// the other roles, which thus follow a role that starts again on another host.
namespace replicant::programs {

// In the process of role `id`, which listens: replaces such an address in
// `config` by a free port at the numeric address from which this host reaches
// the supervisor, and tells `heartbeat`. The result keeps the port. `options`
// are the options of `heartbeat`. Throws ConfigError, naming the key, without a
// supervisor.
std::optional<fleet::PortClaim> ChooseEndpoint(
    const fleet::RoleId& id, const fleet::HeartbeatSenderOptions& options,
    fleet::HeartbeatSender* heartbeat, RunConfig* config);

// In a process that connects to role `id`: its present address, empty while the
// role is away. An address that the configuration gives is always the present
// one. `heartbeat` must outlive the function. Throws as ChooseEndpoint() does.
std::function<std::string()> FindEndpoint(
    const fleet::RoleId& id, const fleet::HeartbeatSenderOptions& options,
    const fleet::HeartbeatSender* heartbeat, RunConfig config);

}  // namespace replicant::programs
