#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/replicator/input.h"
#include "core/runtime/variable_store.h"
#include "learner/checkpointed_input.h"

namespace replicant::learner {

using replicator::NextResult;

// A training as the learner sees it: what one step is, and what of it others
// want to know. A workload builds its step on a replicator
// (core/replicator/replicator.h); the loop around it, with its limits,
// checkpoints and logs, is the same for all (learner/learner.h).
//
// Thread-safety: one thread makes all calls, the one that made the workload.
class Workload {
 public:
  virtual ~Workload() = default;

  // Makes one training step, waiting for its input until `deadline`. Anything
  // but kOk means that nothing was learned.
  virtual NextResult Step(Clock::TimePoint deadline) = 0;

  // How many steps the run has made since the Step() before the last one: those
  // of other processes, which do not wait for this one, count.
  virtual int64_t NumNewSteps() const { return 1; }

  // The run ends here: where processes train together, the Step() of the others
  // gives kEnd.
  virtual void Stop() {}

  // What Step() waits for, in a few words: "replay: 812 of 1000 items".
  virtual std::string WaitReason() const = 0;

  // How long Step() has waited for input so far, in all, seconds.
  virtual double WaitSeconds() const = 0;

  // The state of the training. Steps are the learner's to count.
  virtual runtime::VariableStore& variables() = 0;

  // What must come back on a resume besides the variables: positions of random
  // streams and of the input, counters. Restore() is given what State() gave
  // and throws InvalidArgument for what it cannot take up.
  virtual std::map<std::string, std::string> State() const { return {}; }
  virtual void Restore(const std::map<std::string, std::string>& /*state*/) {}

  // Numbers of the last step for the curves: {"critic_loss", 1.25}.
  virtual std::vector<std::pair<std::string, double>> Scalars() const = 0;

  // Environment frames that the data seen so far took; 0 where that means
  // nothing.
  virtual int64_t NumFrames() const { return 0; }

  // Names of the variables that others follow while it trains, such as the
  // policy that actors act by; none by default.
  virtual std::vector<std::string> PublishedVariables() const { return {}; }
  // What they are told with them (core/runtime/parameters.h).
  virtual std::map<std::string, std::string> PublishedMetadata() const {
    return {};
  }

  // The input's part in the run's checkpoints; null if it has none. Owned by
  // the workload, and the same in every call.
  virtual CheckpointedInput* input() { return nullptr; }
};

}  // namespace replicant::learner
