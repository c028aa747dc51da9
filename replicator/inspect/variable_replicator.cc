#include "replicator/inspect/variable_replicator.h"

#include "base/check.h"
#include "engine/kernels/backend.h"
#include "replicator/inspect/inspection_input.h"
#include "replicator/inspect/inspection_step.h"
#include "replicator/steps/single_plans.h"

namespace replicant::replicator {
namespace {

class VariableReplicator : public Replicator {
 public:
  VariableReplicator(const ReplicationConfig& config, uint64_t seed)
      : replicas_of_group_(config.replicas_of_group()),
        seed_(seed),
        backend_(kernels::MakeBackend(config.policy_backend())),
        variables_(*backend_, seed),
        build_phase_(config.accumulation_steps) {}

  int num_replicas() const override { return 1; }
  int accumulation_steps() const override {
    return build_phase_.accumulation_steps();
  }
  runtime::VariableStore& variables() override { return variables_; }

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override {
    return InspectionInput::Make(this, input_fn, mode, replicas_of_group_);
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& /*options*/) override {
    const auto* own_input = dynamic_cast<InspectionInput*>(&input);
    REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                    "Build: the input is another replicator's");
    const SinglePlans plans(phases, own_input->specs(), seed_, &build_phase_);
    for (const Graph* graph : plans.graphs()) variables_.Declare(*graph);
    return std::make_unique<InspectionStep>(
        "a step whose variables are read does not run");
  }

  const int replicas_of_group_;
  const uint64_t seed_;
  const std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
  PhaseBuilder build_phase_;
};

}  // namespace

std::unique_ptr<Replicator> MakeVariableReplicator(
    const ReplicationConfig& config, uint64_t seed) {
  return std::make_unique<VariableReplicator>(config, seed);
}

}  // namespace replicant::replicator
