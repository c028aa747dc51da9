#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/task_spec.h"
#include "base/tensor/dtype.h"
#include "engine/graph/graph.h"
#include "engine/nn/replica_context.h"

namespace replicant::agents {

// The H steps that follow o_t in each row of a batch, as inputs of a graph. A
// window has k steps; all inputs after them are 0.
struct StepWindow {
  graph::Output observation;  // [B, H, ...]: o_{t+1} ...
  graph::Output state;        // [B, H, S], see TransitionBatch
  graph::Output action;       // [B, H, A]: a_t ...
  graph::Output reward;       // [B, H]: r_{t+1} ...
  graph::Output discount;     // [B, H]: d_{t+1} ..., 0 at an end
  graph::Output mask;         // [B, H]: 1 for a step of the window, else 0
  // [B, H]: 1 for the step whose observation is next_observation, else 0
  graph::Output bootstrap;
};

// A batch of n-step transitions (replay/table/n_step.h) as inputs of a graph.
// B rows.
struct TransitionBatch {
  graph::Output observation;  // [B, ...]: u8 pixels or f32 states
  // [B, S]: the state in addition to the pixels; invalid if
  // TaskSpec::state_size is 0
  graph::Output state;
  graph::Output action;    // [B, A], in [-1, 1]
  graph::Output reward;    // [B]: R, the discounted sum of n rewards
  graph::Output discount;  // [B]: D, product of n discounts; 0 at an end
  graph::Output next_observation;   // [B, ...]: where the return bootstraps
  graph::Output next_state;         // [B, S]
  graph::Output importance_weight;  // [B], > 0; largest of the batch is <= 1
  // of a table with windows; otherwise none
  std::optional<StepWindow> window = {};
};

// The learning problem of an agent.
struct LearningSpec {
  TaskSpec task;
  double discount = 0.99;  // per agent step
  int64_t n_step = 1;      // n of the transitions
  int64_t window = 0;      // H, steps of a window; 0: none
  // Type of parameters and computation.
  DType dtype = DType::kF32;
};

// One update of all trained variables.
struct AgentUpdate {
  // Scalars of the replica's rows for the curves, which show their means over
  // the replicas: "critic_loss".
  std::vector<std::pair<std::string, graph::Output>> losses;
  // [B] each; the curves show their means.
  std::vector<std::pair<std::string, graph::Output>> values;
  // [B]: new priorities of the sampled items.
  graph::Output priority;
  // Nodes that write variables.
  std::vector<graph::Output> updates;
  // Further scalars for the curves, already over all rows: gradient norms,
  // learning rates.
  std::vector<std::pair<std::string, graph::Output>> scalars = {};
};

struct PolicyOptions {
  // E, the number of environments that act together.
  int64_t num_environments = 1;
  // Whether the policy adds Gaussian noise with the scale of input
  // "noise_scale" (arXiv:1804.08617, section 4).
  bool has_noise = true;
  // Global number of environment 0, which keys the noise: actors with one seed
  // and different numbers draw different noise.
  int64_t first_environment = 0;
};

// An agent: a policy for actors, and the update with which a learner trains it.
// Both functions build graphs; they share variables by name.
//
// A program adds its own agent to its registry (programs/run/registry.h). The
// learner, the actors and the evaluator then run the agent unchanged.
//
// Thread-safety: const methods may run concurrently on different graphs.
class Agent {
 public:
  virtual ~Agent() = default;

  // Throws ConfigError if the agent cannot learn this problem.
  virtual void Check(const LearningSpec& spec) const = 0;

  // Adds the policy and returns the actions, f32 [E, A] in [-1, 1]. Its inputs
  // are "observation" [E, ...], with a state in addition to pixels "state" f32
  // [E, S], and, with noise, "noise_scale" f32 [E] (0 for the mean action) and
  // "step" i64 [], which keys the noise.
  virtual graph::Output BuildPolicy(graph::Graph& graph, const TaskSpec& task,
                                    const PolicyOptions& options) const = 0;

  // Adds networks, losses and optimizers for `batch`, the rows of this replica.
  virtual AgentUpdate BuildUpdate(nn::ReplicaContext& replica,
                                  const LearningSpec& spec,
                                  const TransitionBatch& batch) const = 0;

  // Adds the nodes that a new run executes once before its first update, such
  // as copies to target networks, and returns those that write. Default: none.
  virtual std::vector<graph::Output> BuildStart(
      graph::Graph& /*graph*/, const LearningSpec& /*spec*/) const {
    return {};
  }

  // Returns why the agent cannot represent the returns of a batch, with the key
  // to change, or "" if it can. `reward` and `discount` are TransitionBatch's,
  // [B]. The learner logs the first such warning.
  virtual std::string WhyUnfit(const LearningSpec& /*spec*/,
                               std::span<const float> /*reward*/,
                               std::span<const float> /*discount*/) const {
    return "";
  }

  // Returns whether the policy reads this variable, so that it is published.
  virtual bool IsOfPolicy(std::string_view variable) const = 0;
};

}  // namespace replicant::agents
