#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/parameter_client.h"
#include "actors/policy_runner.h"
#include "base/clock.h"

namespace replicant::actors {

// A policy with the learner's newest parameters.
//
// Thread-safety: one thread makes all calls.
class FollowedPolicy {
 public:
  // `policy` outlives this. Throws what ParameterClient's constructor throws.
  FollowedPolicy(const std::string& endpoint, const rpc::GroupKey& key,
                 PolicyRunner* policy)
      : client_(endpoint, key), policy_(*policy) {}

  // Sets newer parameters if there are any; waits for them until `timeout`.
  // Throws what ParameterClient::Poll() and PolicyRunner::SetParameters()
  // throw.
  void Poll(Clock::Duration timeout);
  // Receives parameters for the next Poll(). Call it often where the policy
  // stays the same for long, such as in an evaluation
  // (ParameterClient::Receive()).
  void Receive() { client_.Receive(Clock::Duration(0)); }
  // The learner's step of the parameters; empty before the first ones.
  std::optional<uint64_t> version() const { return version_; }
  // Agent steps of all actors that the learner had counted at that step.
  int64_t agent_steps() const { return agent_steps_; }

 private:
  ParameterClient client_;
  PolicyRunner& policy_;
  std::optional<uint64_t> version_;
  int64_t agent_steps_ = 0;
};

}  // namespace replicant::actors
