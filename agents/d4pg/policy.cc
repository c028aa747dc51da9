#include "agents/d4pg/policy.h"

#include <optional>
#include <vector>

#include "agents/images.h"
#include "agents/observation_normalizer.h"
#include "agents/transition_batch.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/optimizers.h"

namespace replicant::agents::d4pg {
namespace {

struct ActingNetworks {
  ActingNetworks(Graph& graph, const D4pgConfig& config,
                 const LearningSpec& spec)
      : encoder(graph, config.networks, spec),
        policy(graph, config.networks, spec, encoder.feature_size()) {}

  Encoder encoder;
  PolicyNetwork policy;
};

}  // namespace

Output BuildPolicy(Graph& graph, const D4pgConfig& config,
                   const LearningSpec& spec, const PolicyOptions& options,
                   CallSite site) {
  const Graph::SiteScope scope(graph, site);
  // a publication has the networks of explorers and evaluators, so that each
  // has the variables of both
  std::optional<ActingNetworks> current;
  std::optional<ActingNetworks> average;
  if (config.average_decay == 0.0 || !config.has_average_explorers) {
    current.emplace(graph, config, spec);
  }
  if (config.average_decay > 0.0) {
    const Graph::Scope average_scope(graph, nn::kAverageScope);
    average.emplace(graph, config, spec);
  }
  const bool is_average =
      average && (!current || !options.has_noise || options.is_evaluated);
  const auto& [encoder, policy] = is_average ? *average : *current;
  const int64_t count = options.num_environments;
  std::vector<Output> images;
  if (options.has_named_images && !spec.task.images.empty()) {
    images = ImageInputs(graph, spec.task, count);
  } else {
    const graph::TensorType type = ObservationType(spec, count);
    images = SplitImages(spec.task,
                         graph.Input("observation", type.dtype, type.shape));
  }
  Output state;
  if (spec.task.state_size > 0) {
    state =
        graph.Input("state", spec.dtype, Shape({count, spec.task.state_size}));
  }
  if (config.observations.is_normalized()) {
    const ObservationNormalizer normalize(graph, spec.task, spec.dtype,
                                          config.observations);
    Output& numbers = spec.task.has_pixels ? state : images.at(0);
    numbers = normalize(numbers);
  }
  const Output mean =
      graph::Cast(policy(encoder(images, state)).action, DType::kF32);
  if (!options.has_noise) return mean;

  const Output scale = graph.Input("noise_scale", DType::kF32, Shape({count}));
  const Output step = graph.Input("step", DType::kI64, Shape({}));
  const Output noise =
      graph::RandomNormal({.name = "exploration",
                           .step = step,
                           .first_row = options.first_environment},
                          DType::kF32, mean.shape());
  const Output scaled = graph::Mul(noise, graph::Reshape(scale, {count, 1}));
  return graph::Clip(graph::Add(mean, scaled), -1.0, 1.0);
}

}  // namespace replicant::agents::d4pg
