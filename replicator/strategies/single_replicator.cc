#include "replicator/strategies/single_replicator.h"

#include <cstring>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "engine/kernels/backend.h"
#include "replicator/steps/single_plans.h"

namespace replicant::replicator {
namespace {

// A pipeline, and the batch that a step has read ahead.
class SingleInput : public Input {
 public:
  SingleInput(const Replicator* owner, std::unique_ptr<InputPipeline> pipeline)
      : owner_(owner), pipeline_(std::move(pipeline)) {}

  const Replicator* owner() const { return owner_; }
  const std::vector<InputSpec>& specs() const { return pipeline_->specs(); }

  void AddStep() { ++num_steps_; }
  // A step is destroyed: the batch that its plan holds is taken out.
  void RemoveStep(const runtime::Executor* plan) noexcept {
    if (plan_ahead_ != nullptr && plan_ahead_ == plan) Recall();
    --num_steps_;
  }

  // Puts the next batch in `batch`, the inputs of `plan`. Throws the error of
  // the last ReadAhead() where it failed.
  NextResult Next(Clock::TimePoint deadline, const runtime::Executor* plan,
                  std::span<const MutableTensorView> batch);
  // While `plan` runs: takes the batch after, if it is there, and sends it.
  void ReadAhead(runtime::Executor* plan,
                 std::span<const MutableTensorView> batch);

 private:
  // Takes the batch out of the plan that holds it. Where that fails the batch
  // is lost, and the next step throws the error.
  void Recall() noexcept;

  const Replicator* owner_;
  const std::unique_ptr<InputPipeline> pipeline_;
  int num_steps_ = 0;  // that exist
  // where the batch ahead is: in the inputs of a plan, or recalled
  runtime::Executor* plan_ahead_ = nullptr;
  std::span<const MutableTensorView> batch_ahead_;
  std::vector<HostTensor> recalled_;
  bool is_ahead_lost_ = false;
  // met while reading ahead: of the next step, not of the one that ran
  std::exception_ptr error_ahead_;
};

NextResult SingleInput::Next(Clock::TimePoint deadline,
                             const runtime::Executor* plan,
                             std::span<const MutableTensorView> batch) {
  if (plan_ahead_ != plan) Recall();
  if (error_ahead_) {
    // the pipeline gives no other batch before
    if (std::exchange(is_ahead_lost_, false)) pipeline_->UseAhead();
    std::rethrow_exception(std::exchange(error_ahead_, {}));
  }
  if (plan_ahead_ == nullptr && recalled_.empty()) {
    return pipeline_->Next(deadline, batch);
  }
  for (size_t i = 0; i < recalled_.size(); ++i) {
    if (batch[i].size_bytes() == 0) continue;
    std::memcpy(batch[i].data(), recalled_[i].bytes().data(),
                batch[i].size_bytes());
  }
  recalled_.clear();
  plan_ahead_ = nullptr;
  pipeline_->UseAhead();
  return NextResult::kOk;
}

void SingleInput::ReadAhead(runtime::Executor* plan,
                            std::span<const MutableTensorView> batch) {
  // steps that take turns would read ahead for each other
  if (num_steps_ > 1) return;
  try {
    if (pipeline_->NextAhead(Clock::Real().Now(), batch) != NextResult::kOk) {
      return;
    }
    plan_ahead_ = plan;
    batch_ahead_ = batch;
    plan->SendInputs();
  } catch (...) {
    error_ahead_ = std::current_exception();
  }
}

void SingleInput::Recall() noexcept {
  if (plan_ahead_ == nullptr) return;
  try {
    std::exchange(plan_ahead_, nullptr)->RecallInputs();
    for (const MutableTensorView& view : batch_ahead_) {
      recalled_.push_back(HostTensor::Clone(view));
    }
  } catch (...) {
    recalled_.clear();
    is_ahead_lost_ = true;
    if (!error_ahead_) error_ahead_ = std::current_exception();
  }
}

class SingleStep : public Step {
 public:
  // `can_read_ahead`: if the plan is one whose inputs can be filled ahead.
  SingleStep(SingleInput* input, std::unique_ptr<SinglePlans> plans,
             bool can_read_ahead)
      : input_(*input), plans_(std::move(plans)) {
    runtime::Executor* const only = plans_->only_plan();
    if (can_read_ahead && only != nullptr && only->can_fill_ahead()) {
      plan_ = only;
    }
    input_.AddStep();
  }
  ~SingleStep() override { input_.RemoveStep(plan_); }

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = input_.Next(deadline, plan_, plans_->batch());
    if (result != NextResult::kOk) return result;
    if (plan_ == nullptr) {
      plans_->Run();
      return result;
    }
    plan_->Start();
    input_.ReadAhead(plan_, plans_->batch());
    plan_->Wait();
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
  SingleInput& input_;
  const std::unique_ptr<SinglePlans> plans_;
  // null for a step that does not read ahead
  runtime::Executor* plan_ = nullptr;
};

class SingleReplicator : public Replicator {
 public:
  SingleReplicator(const ReplicationConfig& config, uint64_t seed,
                   const kernels::BackendFactory& make_backend)
      : seed_(seed),
        build_phase_(config.accumulation_steps),
        reads_ahead_(config.read_ahead),
        backend_(make_backend(
            config.backend,
            config.backend_options(/*number=*/0, config.MakePlanCache()))),
        variables_(*backend_, seed) {}

  int num_replicas() const override { return 1; }
  int accumulation_steps() const override {
    return build_phase_.accumulation_steps();
  }
  runtime::VariableStore& variables() override { return variables_; }

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode /*mode*/) override {
    return std::make_unique<SingleInput>(this, input_fn(InputContext{}));
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override {
    auto* own_input = dynamic_cast<SingleInput*>(&input);
    REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                    "Build: the input is another replicator's");
    auto plans = std::make_unique<SinglePlans>(phases, own_input->specs(),
                                               seed_, &build_phase_);
    plans->Compile(variables_, options);
    // debug mode reads the inputs of a run while it computes
    return std::make_unique<SingleStep>(own_input, std::move(plans),
                                        reads_ahead_ && !options.check_finite);
  }

  const uint64_t seed_;
  PhaseBuilder build_phase_;
  const bool reads_ahead_;
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
