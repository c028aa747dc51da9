#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "agents/task_spec.h"
#include "agents/transition_batch.h"
#include "base/config/reader.h"
#include "engine/graph/graph.h"
#include "engine/nn/replica_context.h"

// Normalization of the numbers of observations by running statistics.
//
//   y = clip((x - mean) / max(sqrt(variance), min_deviation), -c, c)
//
// for each of the S numbers. Pixels stay as they are.
//
// The statistics are variables of the learner, "observations/mean" and
// "observations/variance", f32 or f64 [S]. They are gathered where data enters
// the learner: from the observations o_t of each update's rows, over all
// replicas and batches of the update. So there is one definition for all
// replicas; checkpoints have the statistics, publications bring them to actors
// and evaluations, and exported policies contain them. Actors gather none.
//
// The replay holds raw numbers, which each update and each policy normalizes
// with its statistics. A change of the statistics therefore makes no row wrong.
//
// After update u (from 0) with means over its rows, delta = E[x - mean] and
// square = E[(x - mean)^2]:
//
//   rate = 1 / min(u + 1, max_updates)
//   mean += rate * delta
//   variance += rate * (square - variance) - rate^2 * delta^2
//
// These are mean and variance of all rows so far (Chan et al. 1979, "Updating
// formulae and a pairwise algorithm"), and of about the last
// max_updates updates later on. An update normalizes with the statistics from
// before it, as losses use the parameters from before it; the first one sees
// raw numbers.
//
// Source: normalization of DDPG with hindsight (arXiv:1802.09464).
// Differs from it: rows count as often as the replay draws them.
namespace replicant::agents {

enum class Normalization { kNone, kRunning };

// Section `observations` of an agent.
struct ObservationsConfig {
  Normalization normalize = Normalization::kNone;
  double min_deviation = 0.01;
  double clip = 10.0;  // c
  int64_t max_updates = 10'000;

  bool is_normalized() const { return normalize == Normalization::kRunning; }
  static ObservationsConfig Read(config::Reader& reader);
};

// Returns the rate above, [] of `dtype`. `step` is the number of updates so
// far, i64 [].
graph::Output StatisticsRate(graph::Output step, int64_t max_updates,
                             DType dtype,
                             graph::CallSite site = graph::CallSite::Here());

// Thread-safety: one thread at a time.
class ObservationNormalizer {
 public:
  // Adds the variables. Throws InvalidArgument if their names are taken, and
  // ConfigError for a task without numbers of the state.
  ObservationNormalizer(graph::Graph& graph, const TaskSpec& task, DType dtype,
                        const ObservationsConfig& config,
                        graph::CallSite site = graph::CallSite::Here());

  // Throws ConfigError if the task's observations have no numbers.
  static void Check(const TaskSpec& task);
  // Whether the policy needs this variable.
  static bool IsOfPolicy(std::string_view variable);

  // [..., S], raw -> [..., S], normalized
  graph::Output operator()(
      graph::Output x, graph::CallSite site = graph::CallSite::Here()) const;
  // Normalizes all observations of a batch, or its states beside pixels.
  TransitionBatch operator()(
      TransitionBatch batch,
      graph::CallSite site = graph::CallSite::Here()) const;

  // Adds the update of the statistics by raw rows `batch` and returns the nodes
  // that write. Called after all others: what is normalized later sees the new
  // statistics.
  std::vector<graph::Output> Update(
      nn::ReplicaContext& replica, const TransitionBatch& batch,
      graph::Output step, graph::CallSite site = graph::CallSite::Here());

 private:
  bool is_beside_pixels_;
  ObservationsConfig config_;
  graph::VariableId mean_, variance_;
};

}  // namespace replicant::agents
