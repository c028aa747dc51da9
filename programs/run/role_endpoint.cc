#include "programs/run/role_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "fleet/cluster_config.h"

namespace replicant::programs {
namespace {

// The address of a role in `config`. Throws ConfigError if the role chooses it
// and has no supervisor that tells it.
PartAddress AddressOf(const fleet::RoleId& id,
                      const fleet::HeartbeatSenderOptions& options,
                      RunConfig* config) {
  const std::string part = id.role == "inference" ? id.role : id.ToString();
  const std::vector<PartAddress> addresses = AddressesOf(config);
  const auto found = std::ranges::find(addresses, part, &PartAddress::part);
  REPLICANT_CHECK(found != addresses.end(), "{} does not listen", part);
  if (found->is_told() && options.endpoint.empty()) {
    throw ConfigError(fmt::format(
        "{}: 'auto', but another host joins for it and no fleet has started "
        "this process, to tell it the address; want that host's "
        "tcp://HOST:PORT",
        found->key));
  }
  return *found;
}

}  // namespace

std::optional<fleet::PortClaim> ChooseEndpoint(
    const fleet::RoleId& id, const fleet::HeartbeatSenderOptions& options,
    fleet::HeartbeatSender* heartbeat, RunConfig* config) {
  const PartAddress address = AddressOf(id, options, config);
  if (!address.is_told()) return std::nullopt;
  fleet::PortClaim claim(
      fmt::format("tcp://{}:*", fleet::AddressBeside(options.endpoint)));
  *address.endpoint = claim.endpoint();
  heartbeat->SetEndpoint(claim.endpoint());
  return claim;
}

std::function<std::string()> FindEndpoint(
    const fleet::RoleId& id, const fleet::HeartbeatSenderOptions& options,
    const fleet::HeartbeatSender* heartbeat, RunConfig config) {
  const PartAddress address = AddressOf(id, options, &config);
  if (address.is_told()) {
    return [id, heartbeat] { return heartbeat->EndpointOf(id); };
  }
  return [endpoint = *address.endpoint] { return endpoint; };
}

}  // namespace replicant::programs
