#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/policy.h"
#include "agents/task_spec.h"
#include "base/clock.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// The policy of an actor process, with the learner's parameters. It is computed
// by the process, or by the inference server of the host.
//
// Thread-safety: one thread makes all calls.
class ActorPolicy {
 public:
  virtual ~ActorPolicy() = default;

  virtual actors::Policy& policy() = 0;
  // Sets newer parameters if there are any; waits for the first ones until
  // `timeout`.
  virtual void Poll(Clock::Duration timeout) = 0;
  // The learner's step of the parameters; empty before the first ones.
  virtual std::optional<uint64_t> version() const = 0;
  // Agent steps of all actors that the learner had counted at that step.
  virtual int64_t agent_steps() const = 0;
};

// Makes the policy of actor `index` from the configuration. `find_server` gives
// the present address of the inference server, empty while it is away, and
// `is_over` ends waits for it; both are called only with a server.
std::unique_ptr<ActorPolicy> MakeActorPolicy(
    const RunConfig& config, const agents::TaskSpec& task, int64_t index,
    std::function<std::string()> find_server, std::function<bool()> is_over);

}  // namespace replicant::programs
