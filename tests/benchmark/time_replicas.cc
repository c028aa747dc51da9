#include "tests/benchmark/time_replicas.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "core/base/rng.h"
#include "core/replicator/replicator.h"
#include "learner/workloads/d4pg/d4pg_step.h"
#include "learner/workloads/d4pg/workload_graph.h"
#include "learner/workloads/image_steps.h"
#include "learner/workloads/resnet50/workload_graph.h"
#include "learner/workloads/sngan/workload_graph.h"

namespace replicant::learner {
namespace {

using replicator::InputContext;
using replicator::Inputs;
using replicator::InputSpec;
using replicator::NextResult;
using replicator::ReplicaContext;

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
      } else if (view.dtype() == DType::kI32) {
        for (int32_t& x : view.Span<int32_t>()) {
          x = static_cast<int32_t>(random.UniformInt(10));
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

ReplicaCase D4pgCase(const d4pg::WorkloadConfig& workload) {
  const auto specs = [workload](int64_t rows) {
    const auto spec = workload.Spec(DType::kF32);
    const auto observation =
        spec.ObservationType(workload.agent.networks, rows);
    const Shape per_row({rows});
    return std::vector<InputSpec>{
        {"observation", observation.dtype, observation.shape},
        {"action", DType::kF32, Shape({rows, workload.action_size})},
        {"reward", DType::kF32, per_row},
        {"discount", DType::kF32, per_row},
        {"next_observation", observation.dtype, observation.shape},
        {"importance_weight", DType::kF32, per_row}};
  };
  return {.batch_size = workload.batch_size,
          .specs = specs,
          .step_fn = [workload](ReplicaContext& replica, const Inputs& inputs) {
            return BuildD4pgStep(replica, inputs, workload.agent,
                                 workload.Spec(DType::kF32),
                                 workload.Support());
          }};
}

// Images of `side` pixels and their classes.
ReplicaCase ImageCase(int64_t batch_size, int64_t side,
                      const replicator::StepFn& step_fn) {
  return {.batch_size = batch_size,
          .specs =
              [side](int64_t rows) {
                return std::vector<InputSpec>{
                    {"image", DType::kU8, Shape({rows, side, side, 3})},
                    {"label", DType::kI32, Shape({rows})}};
              },
          .step_fn = step_fn};
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

ReplicaCase MakeReplicaCase(const std::string& workload,
                            config::Document document) {
  if (workload == "resnet50") {
    const auto config =
        config::Load<resnet50::WorkloadConfig>(std::move(document)).config;
    return ImageCase(config.batch_size, config.model.image_size,
                     [config](ReplicaContext& replica, const Inputs& inputs) {
                       return BuildResNetStep(replica, inputs, config.model);
                     });
  }
  if (workload == "sngan") {
    const auto config =
        config::Load<sngan::WorkloadConfig>(std::move(document)).config;
    const auto network = config.kind == sngan::GraphKind::kGenerator
                             ? SnganNetwork::kGenerator
                             : SnganNetwork::kDiscriminator;
    return ImageCase(config.batch_size, config.model.side(),
                     [=](ReplicaContext& replica, const Inputs& inputs) {
                       return BuildSnganStep(replica, inputs, config.model,
                                             network);
                     });
  }
  return D4pgCase(
      config::Load<d4pg::WorkloadConfig>(std::move(document)).config);
}

ReplicaTimes TimeReplicas(const ReplicaCase& c,
                          const replicator::ReplicationConfig& config,
                          const runtime::CompileOptions& options,
                          double seconds) {
  using std::chrono::steady_clock;
  const auto replicator = replicator::Replicator::Create(config, /*seed=*/1);
  const auto input = replicator->MakeInput([&](const InputContext& context) {
    return std::make_unique<OneBatch>(
        c.specs(context.PipelineBatchSize(c.batch_size)));
  });
  const auto step = replicator->Build(*input, c.step_fn, options);
  const auto run = [&] { static_cast<void>(step->Run({})); };
  ReplicaTimes times;
  if (replicator->process_id() != 0) {
    while (step->Run({}) != NextResult::kEnd) {
    }
    return times;
  }
  for (int i = 0; i < 5; ++i) run();
  std::vector<double> buckets;
  std::vector<double> calls;
  const auto begin = steady_clock::now();
  while (std::chrono::duration<double>(steady_clock::now() - begin).count() <
             seconds ||
         times.steps.size() < 5) {
    const auto start = steady_clock::now();
    run();
    times.steps.push_back(
        std::chrono::duration<double, std::milli>(steady_clock::now() - start)
            .count());
    const replicator::ReduceTimes reduce = step->reduce_times();
    buckets.push_back(1e3 * reduce.buckets_s);
    calls.push_back(1e3 * reduce.calls_s);
  }
  std::ranges::sort(times.steps);
  times.buckets = Median(buckets);
  times.calls = Median(calls);
  times.profile = step->profile();
  replicator->Stop();
  return times;
}

}  // namespace replicant::learner
