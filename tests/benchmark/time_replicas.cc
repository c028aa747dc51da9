#include "tests/benchmark/time_replicas.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "core/base/rng.h"
#include "core/replicator/replicator.h"
#include "learner/workloads/d4pg/d4pg_step.h"

namespace replicant::learner {
namespace {

using replicator::InputContext;
using replicator::NextResult;

// The same batch for every step.
class OneBatch : public replicator::InputPipeline {
 public:
  explicit OneBatch(std::vector<replicator::InputSpec> specs)
      : specs_(std::move(specs)) {}

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (std::exchange(is_filled_, true)) return NextResult::kOk;
    RandomStream random(1, "batch");
    for (const MutableTensorView& view : batch) {
      if (view.dtype() == DType::kU8) {
        for (uint8_t& x : view.Span<uint8_t>()) {
          x = static_cast<uint8_t>(random.UniformInt(256));
        }
      } else {
        for (float& x : view.Span<float>()) {
          x = static_cast<float>(random.Uniform(0.1, 0.9));
        }
      }
    }
    return NextResult::kOk;
  }

 private:
  std::vector<replicator::InputSpec> specs_;
  bool is_filled_ = false;
};

std::vector<replicator::InputSpec> SpecsOf(const d4pg::WorkloadConfig& workload,
                                           int64_t rows) {
  const auto spec = workload.Spec(DType::kF32);
  const auto observation = spec.ObservationType(workload.agent.networks, rows);
  const Shape per_row({rows});
  return {{"observation", observation.dtype, observation.shape},
          {"action", DType::kF32, Shape({rows, workload.action_size})},
          {"reward", DType::kF32, per_row},
          {"discount", DType::kF32, per_row},
          {"next_observation", observation.dtype, observation.shape},
          {"importance_weight", DType::kF32, per_row}};
}

}  // namespace

std::vector<double> TimeReplicas(const d4pg::WorkloadConfig& workload,
                                 graph::Precision precision,
                                 const replicator::ReplicationConfig& config,
                                 double seconds) {
  using std::chrono::steady_clock;
  const auto replicator = replicator::Replicator::Create(config, /*seed=*/1);
  const auto input = replicator->MakeInput([&](const InputContext& context) {
    return std::make_unique<OneBatch>(
        SpecsOf(workload, context.PipelineBatchSize(workload.batch_size)));
  });
  const auto step = replicator->Build(
      *input,
      [&](replicator::ReplicaContext& replica,
          const replicator::Inputs& inputs) {
        return BuildD4pgStep(replica, inputs, workload.agent,
                             workload.Spec(DType::kF32), workload.Support());
      },
      {.passes = {.precision = precision}});
  const auto run = [&] { static_cast<void>(step->Run({})); };
  for (int i = 0; i < 5; ++i) run();
  std::vector<double> times;
  const auto begin = steady_clock::now();
  while (std::chrono::duration<double>(steady_clock::now() - begin).count() <
             seconds ||
         times.size() < 5) {
    const auto start = steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double, std::milli>(steady_clock::now() - start)
            .count());
  }
  std::ranges::sort(times);
  return times;
}

}  // namespace replicant::learner
