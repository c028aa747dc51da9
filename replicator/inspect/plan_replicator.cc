#include "replicator/inspect/plan_replicator.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "replicator/inspect/inspection_input.h"
#include "replicator/inspect/inspection_step.h"
#include "replicator/steps/single_plans.h"

namespace replicant::replicator {
namespace {

class Planner : public Replicator {
 public:
  Planner(const ReplicationConfig& config, uint64_t seed,
          const kernels::BackendFactory& make_backend)
      : num_replicas_(config.replicas_of_group()),
        seed_(seed),
        backend_(make_backend(
            config.backend,
            config.backend_options(/*number=*/0, /*tuned_plans=*/nullptr))),
        variables_(*backend_, seed) {}

  const std::vector<StepPlan>& plans() const { return plans_; }
  int num_replicas() const override { return 1; }
  runtime::VariableStore& variables() override { return variables_; }

 private:
  // The rows of one replica.
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode /*mode*/) override {
    return std::make_unique<InspectionInput>(
        this,
        input_fn(
            {.num_replicas = num_replicas_, .num_pipelines = num_replicas_}),
        /*num_replicas=*/1);
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override {
    const auto* own_input = dynamic_cast<InspectionInput*>(&input);
    REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                    "Build: the input is another replicator's");
    for (size_t phase = 0; phase < phases.size(); ++phase) {
      PhaseBuilder build_phase(/*accumulation_steps=*/1);
      SinglePlans plans({phases[phase]}, own_input->specs(), seed_,
                        &build_phase);
      plans.Compile(variables_, options);
      plans_.push_back({phase == 0 ? options.name
                                   : fmt::format("{}_{}", options.name, phase),
                        plans.report()});
    }
    return std::make_unique<InspectionStep>(
        "a step whose plan is read does not run");
  }

  const int num_replicas_;
  const uint64_t seed_;
  const std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
  std::vector<StepPlan> plans_;
};

}  // namespace

PlanReplicator MakePlanReplicator(const ReplicationConfig& config,
                                  uint64_t seed,
                                  const kernels::BackendFactory& make_backend) {
  auto planner = std::make_unique<Planner>(config, seed, make_backend);
  const std::vector<StepPlan>* const plans = &planner->plans();
  return {.replicator = std::move(planner), .plans = plans};
}

}  // namespace replicant::replicator
