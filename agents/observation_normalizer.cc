#include "agents/observation_normalizer.h"

#include <string>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/state.h"
#include "engine/nn/initializers.h"

namespace replicant::agents {
namespace {

using graph::CallSite;
using graph::Graph;
using graph::Output;

constexpr const char* kMean = "observations/mean";
constexpr const char* kVariance = "observations/variance";

}  // namespace

ObservationsConfig ObservationsConfig::Read(config::Reader& reader) {
  ObservationsConfig c;
  reader.Field(
      "normalize", &c.normalize,
      {{"none", Normalization::kNone}, {"running", Normalization::kRunning}},
      "normalization of the observation's numbers. running: by their "
      "mean and standard deviation so far, which checkpoints and "
      "exported policies hold; pixels stay as they are");
  reader.Field("min_deviation", &c.min_deviation, {1e-8, 1e6},
               "smallest standard deviation that numbers are divided by");
  reader.Field("clip", &c.clip, {0.1, 1e6},
               "largest size of a normalized number");
  reader.Field("max_updates", &c.max_updates, {1, 1'000'000'000},
               "updates that mean and deviation are averaged over, at most; "
               "fewer: they follow the policy's observations faster");
  return c;
}

Output StatisticsRate(Output step, int64_t max_updates, DType dtype,
                      CallSite site) {
  const Graph::SiteScope scope(step, site);
  Graph& graph = *step.graph;
  const Output count = graph::Cast(graph::Add(step, 1.0), dtype);
  const Output bounded = graph::Minimum(
      count, graph.Scalar(static_cast<double>(max_updates), dtype));
  return graph::Div(graph.Scalar(1.0, dtype), bounded);
}

void ObservationNormalizer::Check(const TaskSpec& task) {
  if (task.num_state_values() > 0) return;
  throw ConfigError(
      "agent.observations.normalize: running, but observations have pixels "
      "alone; hint: task.pixels.state: true, or normalize: none");
}

bool ObservationNormalizer::IsOfPolicy(std::string_view variable) {
  return variable == kMean || variable == kVariance;
}

ObservationNormalizer::ObservationNormalizer(Graph& graph, const TaskSpec& task,
                                             DType dtype,
                                             const ObservationsConfig& config,
                                             CallSite site)
    : is_beside_pixels_(task.has_pixels), config_(config) {
  const Graph::SiteScope scope(graph, site);
  Check(task);
  const Shape shape({task.num_state_values()});
  mean_ = graph.AddVariable(
      {.name = kMean, .dtype = dtype, .shape = shape, .is_trainable = false});
  variance_ = graph.AddVariable({.name = kVariance,
                                 .dtype = dtype,
                                 .shape = shape,
                                 .initializer = nn::Constant(1.0),
                                 .is_trainable = false});
}

Output ObservationNormalizer::operator()(Output x, CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  const Output deviation =
      graph::Maximum(graph::Sqrt(graph.Read(variance_)),
                     graph.Scalar(config_.min_deviation, x.dtype()));
  const Output centered = graph::Sub(x, graph.Read(mean_));
  return graph::Clip(graph::Div(centered, deviation), -config_.clip,
                     config_.clip);
}

TransitionBatch ObservationNormalizer::operator()(TransitionBatch batch,
                                                  CallSite site) const {
  const auto normalize = [&](Output* x) { *x = (*this)(*x, site); };
  normalize(is_beside_pixels_ ? &batch.state : &batch.observation);
  if (batch.window) {
    normalize(is_beside_pixels_ ? &batch.window->state
                                : &batch.window->observation);
  } else {
    normalize(is_beside_pixels_ ? &batch.next_state : &batch.next_observation);
  }
  return batch;
}

std::vector<Output> ObservationNormalizer::Update(nn::ReplicaContext& replica,
                                                  const TransitionBatch& batch,
                                                  Output step, CallSite site) {
  const Output x = is_beside_pixels_ ? batch.state : batch.observation;
  const Graph::SiteScope scope(x, site);
  Graph& graph = replica.graph();
  const Output mean = graph.Read(mean_);
  const Output variance = graph.Read(variance_);
  // differences, as gradients are, so that pushes to parameter servers add up
  const Output centered = graph::Sub(x, mean);
  const Output square =
      graph::ReduceMean(graph::Square(centered), {.axes = {0}});
  const std::vector<Output> changes =
      replica.MeanGradients({graph::ReduceMean(centered, {.axes = {0}}),
                             graph::Sub(square, variance)});
  const Output rate = StatisticsRate(step, config_.max_updates, x.dtype());
  const Output shift = graph::Mul(rate, changes[0]);
  const Output spread =
      graph::Sub(graph::Mul(rate, changes[1]), graph::Square(shift));
  return {graph::Assign(graph, mean_, graph::Add(mean, shift)),
          // rounding may leave it below 0
          graph::Assign(graph, variance_,
                        graph::Relu(graph::Add(variance, spread)))};
}

}  // namespace replicant::agents
