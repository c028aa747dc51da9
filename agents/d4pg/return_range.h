#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/config.h"
#include "agents/d4pg/networks.h"
#include "agents/learning_spec.h"
#include "agents/transition_batch.h"
#include "engine/graph/graph.h"
#include "engine/nn/replica_context.h"

// The range of returns, found from the rewards that a learner sees, for rewards
// of any size (agent.distribution.range: running).
//
// x = R / (1 - D) is the return if every step had a transition's reward; after
// a termination it is R. Over all rows so far (StatisticsRate()), with d =
// range_deviations:
//
//   v_max =  d * sqrt(E[max(x, 0)^2])
//   v_min = -d * sqrt(E[max(-x, 0)^2])
//
// By Minkowski's inequality the root mean square of returns G = sum gamma^k r
// is at most that of x, so at most 1 / d^2 of the returns leave [v_min, v_max]
// (Chebyshev's inequality), and those count as its bounds.
//
// The critic's atoms stay where rewards in [0, 1] have them, in [0, W], W =
// 1 / (1 - gamma): rewards are mapped such that returns in [v_min, v_max] fill
// them. Clipping of gradients, penalties and priorities therefore mean the same
// for rewards of every size. The replay holds raw rewards, so that a change of
// the range makes no row wrong. An update uses the range from before it.
//
// The two means are variables, "returns/positive_square" and
// "returns/negative_square" []: over all replicas and batches of an update, and
// in checkpoints.
//
// Source: scaling by the spread of returns, as in gymnasium's NormalizeReward
// (arXiv:2005.12729) and SimbaV2 (arXiv:2502.15280).
// Differs from both: they scale by the spread of the discounted sum along an
// episode, but rows of a replay have no order; and there are two bounds, so
// that rewards of one sign do not waste half of the atoms.
namespace replicant::agents::d4pg {

class ReturnRange {
 public:
  // Adds the variables. Until the first update the range is [0, W]. Throws
  // InvalidArgument if their names are taken.
  ReturnRange(graph::Graph& graph, const DistributionConfig& config,
              const LearningSpec& spec,
              graph::CallSite site = graph::CallSite::Here());

  // n-step rewards R [B] with their discounts D [B], mapped such that R + D G
  // for a return G becomes a point among the atoms if G is one.
  graph::Output ToAtoms(graph::Output reward, graph::Output discount) const;
  // The inverse, of expected returns and of differences of them, [B].
  graph::Output ToReturns(graph::Output value) const;
  graph::Output ToDifferences(graph::Output value) const;

  // For the curves: "v_min" and "v_max" before the update, [].
  std::vector<std::pair<std::string, graph::Output>> Scalars() const;

  // Adds the update of the means by raw rows and returns the nodes that write.
  // `step` is the number of updates so far, i64 [].
  std::vector<graph::Output> Update(
      nn::ReplicaContext& replica, const TransitionBatch& batch,
      graph::Output step, int64_t max_updates,
      graph::CallSite site = graph::CallSite::Here());

 private:
  double width_;  // W
  graph::VariableId positive_, negative_;
  // before the update
  graph::Output positive_square_, negative_square_;
  graph::Output v_min_, v_max_;
  graph::Output length_;  // v_max - v_min, > 0
};

}  // namespace replicant::agents::d4pg
