#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agents/learning_spec.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "engine/graph/graph.h"

namespace replicant::agents {

// The H steps that follow o_t in each row of a batch, as inputs of a graph, and
// T of the observations that they lead to: first the one where the return
// bootstraps, then others, drawn at random where T < H. A window has k steps;
// all inputs after them, and after k observations, are 0.
struct StepWindow {
  graph::Output observation;  // [B, T, ...]
  graph::Output state;        // [B, T, S], see TransitionBatch
  // [B, T, H]: 1 where step h, which is 0 for a_t, leads to the observation
  graph::Output follows;
  graph::Output action;    // [B, H, A]: a_t ...
  graph::Output reward;    // [B, H]: r_{t+1} ...
  graph::Output discount;  // [B, H]: d_{t+1} ..., 0 at an end
  graph::Output mask;      // [B, H]: 1 for a step of the window, else 0
};

// A batch of n-step transitions (replay/table/n_step.h) as inputs of a graph.
// B rows.
struct TransitionBatch {
  // [B, ...]: u8 pixels or floating states; SplitImages() (agents/images.h)
  // separates several images
  graph::Output observation;
  // [B, S]: the state in addition to the pixels; invalid if
  // TaskSpec::state_size is 0
  graph::Output state;
  graph::Output action;    // [B, A], in [-1, 1]
  graph::Output reward;    // [B]: R, the discounted sum of n rewards
  graph::Output discount;  // [B]: D, product of n discounts; 0 at an end
  // [B, ...] and [B, S]: where the return bootstraps; none with a window, whose
  // first observation this is
  graph::Output next_observation = {};
  graph::Output next_state = {};
  graph::Output importance_weight;  // [B], > 0; largest of the batch is <= 1
  // [B]: for a row of prior data the rows of the whole batch / those of prior
  // data, else 0: mean_b(prior_weight[b] * x[b]) over the whole batch is the
  // mean of x over prior data. Invalid without LearningSpec::has_prior
  graph::Output prior_weight = {};
  // of a table with windows; otherwise none
  std::optional<StepWindow> window = {};

  // The batch of TransitionTensors(); input(name) returns the graph's input of
  // that name.
  static TransitionBatch From(
      const LearningSpec& spec,
      const std::function<graph::Output(const std::string& name)>& input);
};

// A tensor of a batch. Its name is the field's, with "window_" before the
// fields of StepWindow.
struct TransitionTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

// Returns the tensors of a batch of `rows` transitions: no window without
// LearningSpec::window, no states unless they come in addition to pixels, and
// no prior_weight without LearningSpec::has_prior. Floating tensors have
// LearningSpec::dtype.
std::vector<TransitionTensor> TransitionTensors(const LearningSpec& spec,
                                                int64_t rows);

// Returns the type of `rows` observations: u8 pixels or floating states.
graph::TensorType ObservationType(const LearningSpec& spec, int64_t rows);

}  // namespace replicant::agents
