#include "agents/d4pg/policy.h"

#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/random.h"
#include "core/graph/ops/shape_ops.h"

namespace replicant::agents::d4pg {

Output BuildPolicy(Graph& graph, const NetworkConfig& config,
                   const AgentSpec& spec, const PolicyOptions& options,
                   CallSite site) {
  const Encoder encoder(graph, config, spec, site);
  const PolicyNetwork policy(graph, config, spec, encoder.feature_size(), site);
  const int64_t count = options.num_environments;
  const graph::TensorType type = spec.ObservationType(config, count);
  const Output observation =
      graph.Input("observation", type.dtype, type.shape, site);
  const Output mean = graph::Cast(
      policy(encoder(observation, site), site).action, DType::kF32, site);
  if (!options.has_noise) return mean;

  const Output scale =
      graph.Input("noise_scale", DType::kF32, Shape({count}), site);
  const Output step = graph.Input("step", DType::kI64, Shape({}), site);
  const Output noise =
      graph::RandomNormal({.name = "exploration",
                           .step = step,
                           .first_row = options.first_environment},
                          DType::kF32, mean.shape(), site);
  const Output scaled =
      graph::Mul(noise, graph::Reshape(scale, {count, 1}, site), site);
  return graph::Clip(graph::Add(mean, scaled, site), -1.0, 1.0, site);
}

}  // namespace replicant::agents::d4pg
