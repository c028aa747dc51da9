#include "core/replicator/strategies/single_replicator.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/kernels/backend.h"
#include "core/replicator/graph/lone_replica.h"
#include "core/replicator/strategies/step_interface.h"

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
  SingleStep(InputPipeline& pipeline, std::vector<std::string> value_names,
             std::unique_ptr<runtime::Executor> plan)
      : pipeline_(pipeline),
        value_names_(std::move(value_names)),
        plan_(std::move(plan)) {
    for (const InputSpec& spec : pipeline_.specs()) {
      batch_.push_back(plan_->input(spec.name));
    }
  }

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = pipeline_.Next(deadline, batch_);
    if (result == NextResult::kOk) plan_->Run();
    return result;
  }

  TensorView value(std::string_view name) const override {
    return plan_->output(FindValue(value_names_, name));
  }

  const runtime::PlanReport& report() const override { return plan_->report(); }
  std::vector<runtime::KernelProfile> profile() const override {
    return plan_->profile();
  }

 private:
  InputPipeline& pipeline_;
  std::vector<std::string> value_names_;
  std::unique_ptr<runtime::Executor> plan_;
  std::vector<MutableTensorView> batch_;
};

class SingleReplicator : public Replicator {
 public:
  SingleReplicator(const ReplicationConfig& config, uint64_t seed,
                   const kernels::BackendFactory& make_backend)
      : seed_(seed),
        backend_(make_backend(config.backend, {.num_threads = config.threads})),
        variables_(*backend_, seed) {}

  int num_replicas() const override { return 1; }

  int process_id() const override { return 0; }

  std::unique_ptr<Step> Build(Input& input, const StepFn& step_fn,
                              const runtime::CompileOptions& options) override {
    auto* own_input = dynamic_cast<SingleInput*>(&input);
    REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                    "Build: the input is another replicator's");
    Graph graph(seed_);
    LoneReplica replica(graph);
    const StepOutputs outputs =
        step_fn(replica, AddInputs(graph, own_input->pipeline().specs()));
    std::vector<std::string> names = ValueNames(outputs);
    runtime::PlanSpec spec{.outputs = {}, .updates = outputs.updates};
    for (const auto& [name, output] : outputs.values) {
      spec.outputs.push_back(output);
    }
    return std::make_unique<SingleStep>(
        own_input->pipeline(), std::move(names),
        std::make_unique<runtime::Executor>(graph, spec, variables_, options));
  }

  runtime::VariableStore& variables() override { return variables_; }
  void Stop() override {}

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode /*mode*/) override {
    return std::make_unique<SingleInput>(this, input_fn(InputContext{}));
  }

  uint64_t seed_;
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
