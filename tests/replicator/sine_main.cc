// sine FILE.yaml [worker|server INDEX]: learns a sine, on as many replicas as
// the file says.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "base/config/load.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"

using namespace replicant;              // NOLINT
using namespace replicant::replicator;  // NOLINT

// Points of a sine: this pipeline's rows of each global batch of 64.
class SinePipeline : public InputPipeline {
 public:
  explicit SinePipeline(const InputContext& context)
      : rows_(context.PipelineBatchSize(64)),
        first_(context.pipeline_id * rows_),
        specs_{{"x", DType::kF32, Shape({rows_, 1})},
               {"y", DType::kF32, Shape({rows_, 1})}} {}

  const std::vector<InputSpec>& specs() const override { return specs_; }

  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    for (int64_t row = 0; row < rows_; ++row) {
      const auto i = static_cast<size_t>(row);
      const auto point = static_cast<float>((first_ + row + 7 * step_) % 64);
      batch[0].Span<float>()[i] = point / 32.0F - 1.0F;
      batch[1].Span<float>()[i] = std::sin(3.0F * (point / 32.0F - 1.0F));
    }
    ++step_;
    return NextResult::kOk;
  }

 private:
  int64_t rows_, first_, step_ = 0;
  std::vector<InputSpec> specs_;
};

// One replica's step on its rows.
static StepOutputs SineStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const nn::Dense hidden(g, "hidden", 1, 32);
  const nn::Dense last(g, "last", 32, 1);
  const Output y = last(graph::Tanh(hidden(batch.at("x"))));
  const Output loss =
      graph::ReduceMean(graph::Square(graph::Sub(y, batch.at("y"))));

  std::vector<VariableId> parameters = hidden.variables();
  for (const VariableId v : last.variables()) parameters.push_back(v);
  std::vector<Output> values;
  values.reserve(parameters.size());
  for (const VariableId v : parameters) values.push_back(g.Read(v));

  const nn::StepCounter step = nn::AddStepCounter(g);
  const Optimizer adam =
      replica.WrapOptimizer([&](const auto& variables, const auto& gradients) {
        return nn::Adam(replica, "adam", variables, gradients,
                        g.Scalar(0.01, DType::kF32), step.value);
      });
  const Output update = adam(parameters, graph::Gradients(loss, values));
  return {.values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)}},
          .updates = {update, step.advance}};
}

int main(int argc, char** argv) try {
  const auto config =
      config::Load<ReplicationConfig>(config::Document::FromFile(argv[1]))
          .config;
  ProcessRank rank;
  if (argc > 3) {
    rank = {.is_server = std::string_view(argv[2]) == "server",
            .index = std::atoi(argv[3])};
  }
  const auto replicator = MakeReplicator(config, /*seed=*/1, rank);
  const auto input = replicator->MakeInput([](const InputContext& context) {
    return std::make_unique<SinePipeline>(context);
  });
  const auto step = replicator->Build(*input, SineStep);
  // the first process makes 300 steps, and the others take part until then
  const bool leads = replicator->process_id() == 0;
  for (int i = 0; i < 300 || !leads;) {
    const auto deadline = Clock::Real().Now() + std::chrono::seconds(1);
    const NextResult result = step->Run(deadline);
    if (result == NextResult::kEnd) break;
    if (result == NextResult::kOk) ++i;
  }
  if (leads) {
    std::printf("loss %.6f\n", step->value("loss").Span<float>()[0]);
    replicator->Stop();
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "sine: %s\n", e.what());
  return 1;
}
