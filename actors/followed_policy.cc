#include "actors/followed_policy.h"

#include <fmt/format.h>

namespace replicant::actors {

void FollowedPolicy::Poll(Clock::Duration timeout) {
  const auto newest = client_.Poll(timeout);
  if (!newest) return;
  policy_.SetParameters(newest->bytes,
                        fmt::format("parameters of step {}", newest->version));
  version_ = newest->version;
  agent_steps_ = newest->agent_steps;
}

}  // namespace replicant::actors
