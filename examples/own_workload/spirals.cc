#include "spirals.h"

#include <cmath>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/trained_variables.h"
#include "learner/workload.h"

namespace {

using namespace replicant;
using replicator::InputContext;
using replicator::InputSpec;
using replicator::NextResult;

// Section `spirals`.
struct SpiralsConfig {
  int64_t hidden_size = 64;
  double learning_rate = 3e-3;

  static SpiralsConfig Read(config::Reader& reader) {
    SpiralsConfig c;
    reader.Field("hidden_size", &c.hidden_size, {1, 4096},
                 "width of both hidden layers");
    reader.Field("learning_rate", &c.learning_rate, {0.0, 1.0},
                 "Adam's step size");
    return c;
  }
};

// Points [B, 2] of the two spirals and their labels [B], without end.
class SpiralPoints : public replicator::InputPipeline {
 public:
  SpiralPoints(int64_t rows, uint64_t seed)
      : specs_{{"point", DType::kF32, Shape({rows, 2})},
               {"label", DType::kI32, Shape({rows}), /*num_classes=*/2}},
        random_(seed, "spirals") {}

  const std::vector<InputSpec>& specs() const override { return specs_; }

  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    const auto points = batch[0].Span<float>();
    const auto labels = batch[1].Span<int32_t>();
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = random_.Uniform(0.0, 1.0) < 0.5 ? 0 : 1;
      const double radius = random_.Uniform(0.1, 1.0);
      const double angle =
          std::numbers::pi * (3.0 * radius + static_cast<double>(labels[i]));
      points[2 * i] = static_cast<float>(radius * std::cos(angle));
      points[2 * i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    return NextResult::kOk;
  }

 private:
  std::vector<InputSpec> specs_;
  RandomStream random_;
};

// The step of one replica, on its rows of the batch.
replicator::StepOutputs BuildStep(replicator::ReplicaContext& replica,
                                  const replicator::Inputs& batch,
                                  const SpiralsConfig& config) {
  graph::Graph& graph = replica.graph();
  const nn::Dense first(graph, "first", 2, config.hidden_size);
  const nn::Dense second(graph, "second", config.hidden_size,
                         config.hidden_size);
  const nn::Dense last(graph, "last", config.hidden_size, 2);
  const graph::Output hidden =
      graph::Tanh(second(graph::Tanh(first(batch.at("point")))));
  const graph::Output logits = last(hidden);
  const graph::Output labels = batch.at("label");
  const graph::Output loss =
      graph::ReduceMean(graph::SoftmaxCrossEntropyWithLabels(logits, labels));
  const graph::Output accuracy = graph::ReduceMean(graph::Cast(
      graph::Equal(graph::Cast(graph::ArgMax(logits), DType::kI32), labels),
      DType::kF32));

  const nn::TrainedVariables trained = nn::GradientsOf(loss, "");
  const nn::StepCounter step = nn::AddStepCounter(graph);
  const graph::Output update =
      nn::Adam(replica, "adam", trained.variables,
               replica.MeanGradients(trained.gradients),
               graph.Scalar(config.learning_rate, DType::kF32), step.value);
  const auto mean = [&](graph::Output x) {
    return replica.AllReduce(x, ReduceOp::kMean);
  };
  return {.values = {{"loss", mean(loss)}, {"accuracy", mean(accuracy)}},
          .updates = {update, step.advance}};
}

class Spirals : public learner::Workload {
 public:
  Spirals(const SpiralsConfig& config, learner::WorkloadArguments arguments)
      : replicator_(std::move(arguments.replicator)) {
    const int64_t batch_size = arguments.learner.batch_size;
    // every pipeline draws its own points
    input_ = replicator_->MakeInput([&](const InputContext& context) {
      const auto pipeline = static_cast<uint64_t>(
          context.group_id * context.num_pipelines + context.pipeline_id);
      return std::make_unique<SpiralPoints>(
          context.PipelineBatchSize(batch_size), arguments.seed + pipeline);
    });
    step_ = replicator_->Build(*input_, [&](replicator::ReplicaContext& replica,
                                            const replicator::Inputs& batch) {
      return BuildStep(replica, batch, config);
    });
  }

  NextResult Step(Clock::TimePoint deadline) override {
    return step_->Run(deadline);
  }
  int64_t NumNewSteps() const override { return step_->num_steps(); }
  void Stop() override { replicator_->Stop(); }
  std::string WaitReason() const override { return "points"; }
  double WaitSeconds() const override { return 0.0; }
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  std::vector<std::pair<std::string, double>> Scalars() const override {
    return {{"loss", step_->value("loss").Span<float>()[0]},
            {"accuracy", step_->value("accuracy").Span<float>()[0]}};
  }

 private:
  std::unique_ptr<replicator::Replicator> replicator_;
  std::unique_ptr<replicator::Input> input_;
  std::unique_ptr<replicator::Step> step_;
};

}  // namespace

replicant::learner::WorkloadDef SpiralsWorkload() {
  return learner::DefineWorkload<SpiralsConfig>(
      "spirals", "the classifier of two spirals",
      [](const SpiralsConfig& config, learner::WorkloadArguments arguments) {
        return std::make_unique<Spirals>(config, std::move(arguments));
      });
}
