#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/learning_spec.h"
#include "agents/task_spec.h"
#include "agents/transition_batch.h"
#include "engine/graph/graph.h"
#include "engine/nn/replica_context.h"

namespace replicant::agents {

// Returns that the agent cannot represent.
struct Misfit {
  std::string why;    // with the key to change
  double size = 0.0;  // grows with the distance from what it can represent
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
  // Whether the networks act that are evaluated, as they do without noise, and
  // not those that explore in a training (D4PG's agent.average_explores).
  bool is_evaluated = false;
  // Global number of environment 0, which keys the noise: actors with one seed
  // and different numbers draw different noise.
  int64_t first_environment = 0;
  // Whether each of several images is an input by its name, for models that
  // leave the program; otherwise they are one input (agents/images.h).
  bool has_named_images = false;
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

  // How many of the observations of a window of `window` steps the agent reads,
  // in [1, window] (LearningSpec::window_observations). 0: it reads no windows,
  // and a table with windows is refused. A batch with windows has no
  // next_observation.
  virtual int64_t NumWindowObservations(int64_t /*window*/) const { return 0; }

  // Throws ConfigError if the agent cannot learn this problem.
  virtual void Check(const LearningSpec& spec) const = 0;

  // Adds the policy and returns the actions, f32 [E, A] in [-1, 1]. Its inputs
  // are "observation" [E, ...] of TaskSpec::observation, with a state in
  // addition to pixels "state" f32 [E, S], and, with noise, "noise_scale" f32
  // [E] (0 for the mean action) and "step" i64 [], which keys the noise.
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

  // Returns why the agent cannot represent the returns of a batch, or
  // std::nullopt if it can. `reward` and `discount` are TransitionBatch's, [B].
  // The learner logs the first misfit, and each one of more than twice the size
  // of the last that it logged.
  virtual std::optional<Misfit> FindMisfit(
      const LearningSpec& /*spec*/, std::span<const float> /*reward*/,
      std::span<const float> /*discount*/) const {
    return std::nullopt;
  }

  // Returns whether the policy reads this variable, so that it is published.
  virtual bool IsOfPolicy(std::string_view variable) const = 0;
};

}  // namespace replicant::agents
