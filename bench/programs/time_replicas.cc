#include "bench/programs/time_replicas.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "agents/d4pg/agent.h"
#include "agents/transition_batch.h"
#include "base/check.h"
#include "base/rng.h"
#include "bench/programs/random_batch.h"
#include "learner/workloads/agent/agent_step.h"
#include "learner/workloads/image_steps.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"
#include "tools/probe/d4pg_step.h"
#include "tools/probe/resnet_step.h"
#include "tools/probe/sngan_step.h"

namespace replicant::learner {
namespace {

using replicator::InputContext;
using replicator::Inputs;
using replicator::InputSpec;
using replicator::NextResult;
using replicator::ReplicaContext;

constexpr int kWarmUpSteps = 3;

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
    for (const MutableTensorView& view : batch) FillInput(view, random);
    return NextResult::kOk;
  }

 private:
  std::vector<replicator::InputSpec> specs_;
  bool is_filled_ = false;
};

ReplicaCase D4pgCase(const probe::d4pg::StepGraphConfig& workload) {
  const agents::LearningSpec spec = workload.Spec(DType::kF32);
  const auto specs = [spec](int64_t rows) {
    std::vector<InputSpec> tensors;
    for (auto& tensor : agents::TransitionTensors(spec, rows)) {
      tensors.push_back({std::move(tensor.name), tensor.dtype, tensor.shape});
    }
    return tensors;
  };
  return {.batch_size = workload.batch_size,
          .specs = specs,
          .step_fn = [agent = agents::d4pg::MakeAgent(workload.agent), spec](
                         ReplicaContext& replica, const Inputs& inputs) {
            return BuildAgentStep(replica, inputs, *agent, spec).outputs;
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

}  // namespace

ReplicaCase MakeReplicaCase(const std::string& workload,
                            config::Document document) {
  if (workload == "resnet50") {
    const auto config =
        config::Load<probe::resnet::StepGraphConfig>(std::move(document))
            .config;
    return ImageCase(config.batch_size, config.model.image_size,
                     [config](ReplicaContext& replica, const Inputs& inputs) {
                       return BuildResNetStep(replica, inputs, config.model);
                     });
  }
  if (workload == "sngan") {
    const auto config =
        config::Load<probe::sngan::StepGraphConfig>(std::move(document)).config;
    const auto network = config.kind == probe::sngan::GraphKind::kGenerator
                             ? SnganNetwork::kGenerator
                             : SnganNetwork::kDiscriminator;
    return ImageCase(config.batch_size, config.model.side(),
                     [=](ReplicaContext& replica, const Inputs& inputs) {
                       return BuildSnganStep(replica, inputs, config.model,
                                             network);
                     });
  }
  return D4pgCase(
      config::Load<probe::d4pg::StepGraphConfig>(std::move(document)).config);
}

ReplicaTimer::ReplicaTimer(const ReplicaCase& c,
                           const replicator::ReplicationConfig& config,
                           const runtime::CompileOptions& options)
    : replicator_(replicator::MakeReplicator(config, /*seed=*/1)),
      input_(replicator_->MakeInput([&](const InputContext& context) {
        return std::make_unique<OneBatch>(
            c.specs(context.PipelineBatchSize(c.batch_size)));
      })),
      step_(replicator_->Build(
          *input_,
          [&](ReplicaContext& replica, const Inputs& inputs) {
            replicator::StepOutputs outputs = c.step_fn(replica, inputs);
            values_.clear();
            for (const auto& [name, output] : outputs.values)
              values_.push_back(name);
            return outputs;
          },
          options)) {
  for (int i = 0; i < kWarmUpSteps && leads(); ++i) TimeStep();
}

ReplicaTimer::~ReplicaTimer() {
  try {
    if (leads()) replicator_->Stop();
    while (!leads() && step_->Run({}) != NextResult::kEnd) {
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "ReplicaTimer: {}\n", e.what());
  }
}

double ReplicaTimer::TimeStep() {
  using std::chrono::steady_clock;
  const auto start = steady_clock::now();
  REPLICANT_CHECK(step_->Run({}) == NextResult::kOk, "the batch is there");
  // a device may still compute: its values wait for it
  for (const std::string& name : values_) step_->value(name);
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start)
      .count();
}

}  // namespace replicant::learner
