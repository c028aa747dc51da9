#include "core/replicator/strategies/single_replicator.h"

#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/kernels/backend.h"
#include "core/replicator/strategies/lone_plans.h"

namespace replicant::replicator {
namespace {

class SingleInput : public Input {
 public:
  SingleInput(const Replicator* owner, std::unique_ptr<InputPipeline> pipeline)
      : owner_(owner), pipeline_(std::move(pipeline)) {}

  const Replicator* owner() const { return owner_; }
  InputPipeline& pipeline() { return *pipeline_; }

 private:
  const Replicator* owner_;
  std::unique_ptr<InputPipeline> pipeline_;
};

class SingleStep : public Step {
 public:
  SingleStep(InputPipeline& pipeline, std::unique_ptr<LonePlans> plans)
      : pipeline_(pipeline), plans_(std::move(plans)) {}

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = pipeline_.Next(deadline, plans_->batch());
    if (result == NextResult::kOk) plans_->Run();
    return result;
  }

  TensorView value(std::string_view name) const override {
    return plans_->value(name);
  }
  const runtime::PlanReport& report() const override {
    return plans_->report();
  }
  std::vector<runtime::KernelProfile> profile() const override {
    return plans_->profile();
  }

 private:
  InputPipeline& pipeline_;
  const std::unique_ptr<LonePlans> plans_;
};

class SingleReplicator : public Replicator {
 public:
  SingleReplicator(const ReplicationConfig& config, uint64_t seed,
                   const kernels::BackendFactory& make_backend)
      : seed_(seed),
        accumulation_steps_(config.accumulation_steps),
        backend_(
            make_backend(config.backend, config.backend_options(/*number=*/0))),
        variables_(*backend_, seed) {}

  int num_replicas() const override { return 1; }
  int accumulation_steps() const override { return accumulation_steps_; }
  int process_id() const override { return 0; }
  runtime::VariableStore& variables() override { return variables_; }
  void Stop() override {}

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode /*mode*/) override {
    return std::make_unique<SingleInput>(this, input_fn(InputContext{}));
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& parts,
      const runtime::CompileOptions& options) override {
    auto* own_input = dynamic_cast<SingleInput*>(&input);
    REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                    "Build: the input is another replicator's");
    InputPipeline& pipeline = own_input->pipeline();
    auto plans = std::make_unique<LonePlans>(
        parts, pipeline.specs(),
        LonePlans::Options{.seed = seed_,
                           .accumulation_steps = accumulation_steps_,
                           .first_part_number = num_parts_});
    num_parts_ += static_cast<int>(parts.size());
    plans->Compile(variables_, options);
    return std::make_unique<SingleStep>(pipeline, std::move(plans));
  }

  const uint64_t seed_;
  const int accumulation_steps_;
  int num_parts_ = 0;
  std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
};

}  // namespace

std::unique_ptr<Replicator> MakeSingleReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend) {
  return std::make_unique<SingleReplicator>(config, seed, make_backend);
}

}  // namespace replicant::replicator
