// The optimizer of examples/kfac, which lies outside the tree.
#include "examples/kfac/kfac.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/nn/optimizers.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

constexpr int64_t kKfacRows = 32;

// Inputs of very different sizes, and a target that is no linear function.
class KfacPipeline : public InputPipeline {
 public:
  KfacPipeline(const InputContext& context, int64_t length)
      : rows_(context.PipelineBatchSize(kKfacRows)),
        first_(context.pipeline_id * rows_),
        length_(length),
        specs_{{"x", DType::kF64, Shape({rows_, 2})},
               {"y", DType::kF64, Shape({rows_, 1})}} {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (step_ == length_) return NextResult::kEnd;
    for (int64_t row = 0; row < rows_; ++row) {
      const auto i = static_cast<size_t>(row);
      const double at =
          static_cast<double>(step_ * kKfacRows + first_ + row) * 0.7;
      const double a = std::sin(1.3 * at);
      const double b = std::sin(2.9 * at + 1.0);
      batch[0].Span<double>()[2 * i] = 0.1 * a;
      batch[0].Span<double>()[2 * i + 1] = 5.0 * b;
      batch[1].Span<double>()[i] = std::tanh(2.0 * a) - 0.5 * b;
    }
    ++step_;
    return NextResult::kOk;
  }

 private:
  const int64_t rows_, first_, length_;
  const std::vector<InputSpec> specs_;
  int64_t step_ = 0;
};

InputFn Examples(int64_t length) {
  return [length](const InputContext& context) {
    return std::make_unique<KfacPipeline>(context, length);
  };
}

KfacOptions Options() { return {.sizes = {2, 6, 5, 1}, .dtype = DType::kF64}; }

std::map<std::string, std::vector<double>> Train(
    const ReplicationConfig& config) {
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Examples(/*length=*/8));
  const auto step = replicator->Build(*input, KfacStep(Options()));
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  auto variables = VariablesOf<double>(*replicator);
  replicator->Stop();
  return variables;
}

void ExpectAsOne(const std::map<std::string, std::vector<double>>& many) {
  for (const auto& [name, value] : Train({.backend = "reference"})) {
    EXPECT_LE(NormOfDifference(many.at(name), value), 1e-9) << name;
  }
}

// Six factors: more and fewer than there are replicas.
TEST(KfacTest, ReplicasThatShareTheInversesLearnAsOne) {
  for (const int replicas : {2, 4, 8}) {
    SCOPED_TRACE(replicas);
    ExpectAsOne(Train({.strategy = &Strategy::kInGraph,
                       .replicas = replicas,
                       .backend = "reference"}));
  }
}

TEST(KfacTest, LearnsWithServers) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(2, 4, 0);
  config.replicas_per_group = 4;
  const auto servers = StartServers(config, Examples(0), KfacStep(Options()));
  ExpectAsOne(Train(config));
}

// The mean loss of the last hundred of 600 batches.
double LossAfter(const StepFn& step_fn) {
  const auto replicator = MakeReplicator({.backend = "reference"}, /*seed=*/3);
  const auto input = replicator->MakeInput(Examples(/*length=*/600));
  const auto step = replicator->Build(*input, step_fn);
  double mean = 0.0;
  for (int i = 0; step->Run(kNoWait) == NextResult::kOk; ++i) {
    if (i >= 500) mean += Values(*step, "loss")[0] / 100.0;
  }
  return mean;
}

// With a damping so large that both inverses are nearly multiples of the
// identity it is SGD.
TEST(KfacTest, LearnsMoreThanSgdInAsManySteps) {
  KfacOptions options = Options();
  const double kfac = LossAfter(KfacStep(options));
  options.damping = 1e6;
  double sgd = 1e9;
  for (const double rate : {0.01, 0.03, 0.1, 0.3}) {
    // the inverses scale the gradient by 1 / damping
    options.learning_rate = rate * options.damping;
    const double loss = LossAfter(KfacStep(options));
    if (std::isfinite(loss)) sgd = std::min(sgd, loss);
  }
  EXPECT_LT(kfac, 0.1 * sgd) << kfac << ", " << sgd;
}

}  // namespace
}  // namespace replicant::replicator
