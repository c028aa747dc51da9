#include "replicator/steps/single_plans.h"

#include <cstring>
#include <utility>

#include "engine/graph/passes/passes.h"
#include "engine/nn/single_replica.h"

namespace replicant::replicator {
namespace {

// A single replica whose updates may learn from several batches.
class AccumulatingReplica : public nn::SingleReplica {
 public:
  AccumulatingReplica(Graph& graph, const Accumulation& accumulation)
      : SingleReplica(graph), sums_(graph, accumulation) {}

  const GradientSums& sums() const { return sums_; }

 private:
  Output DoMeanGradient(Output gradient, CallSite site) override {
    return sums_.Mean(
        gradient, [](Output mean) { return mean; }, site);
  }
  Output DoRowOffset(int64_t rows_of_all) override {
    return sums_.RowOffset(rows_of_all);
  }

  GradientSums sums_;
};

void CopyInput(TensorView from, MutableTensorView to) {
  if (to.size_bytes() > 0) std::memcpy(to.data(), from.data(), to.size_bytes());
}

}  // namespace

SinglePlans::SinglePlans(const std::vector<StepFn>& phases,
                         const std::vector<InputSpec>& specs, uint64_t seed,
                         PhaseBuilder* build_phase)
    : specs_(specs) {
  for (const StepFn& step_fn : phases) {
    std::vector<std::string> names;
    const auto build = [&](const Accumulation& accumulation) {
      return BuildPlan(step_fn, specs, seed, accumulation, &names);
    };
    const auto accumulates = [](const auto& plan) { return plan != nullptr; };
    phases_.push_back({.built = (*build_phase)(build, accumulates)});
    names_.AddPhase(names);
    if (phases_.back().built.earlier) {
      batches_per_update_ = build_phase->accumulation_steps();
    }
  }
  if (phases_.size() > 1 && batches_per_update_ > 1) {
    kept_.resize(static_cast<size_t>(batches_per_update_));
    for (auto& batch : kept_) {
      for (const InputSpec& spec : specs_) {
        batch.emplace_back(spec.dtype, spec.shape);
      }
    }
  }
}

std::unique_ptr<SinglePlans::Plan> SinglePlans::BuildPlan(
    const StepFn& step_fn, const std::vector<InputSpec>& specs, uint64_t seed,
    const Accumulation& accumulation, std::vector<std::string>* names) {
  auto plan = std::make_unique<Plan>();
  plan->graph = std::make_unique<Graph>(seed);
  AccumulatingReplica replica(*plan->graph, accumulation);
  const StepOutputs outputs = step_fn(replica, AddInputs(*plan->graph, specs));
  *names = NamesOf(outputs);
  plan->spec = {.outputs = ValuesOf(outputs), .updates = outputs.updates};
  if (accumulation.role == BatchRole::kEarlier) {
    if (!replica.sums().AreNeeded(!outputs.updates.empty())) return nullptr;
    plan->spec.updates = replica.sums().accumulations();
    replica.sums().CheckAccumulates(graph::ExtractProgram(
        *plan->graph, plan->spec.outputs, plan->spec.updates));
  }
  return plan;
}

std::vector<const Graph*> SinglePlans::graphs() const {
  std::vector<const Graph*> graphs;
  for (const Phase& phase : phases_) {
    if (phase.built.earlier) {
      graphs.push_back((*phase.built.earlier)->graph.get());
    }
    graphs.push_back(phase.built.last->graph.get());
  }
  return graphs;
}

void SinglePlans::Compile(runtime::VariableStore& variables,
                          const runtime::CompileOptions& options) {
  const auto compile = [&](Plan* plan) {
    plan->executor = std::make_unique<runtime::Executor>(
        *plan->graph, plan->spec, variables, options);
    for (const InputSpec& spec : specs_) {
      plan->batch.push_back(plan->executor->input(spec.name));
    }
    for (const std::string& name : plan->executor->input_names()) {
      plan->accumulation.Add(name, plan->executor->input(name));
    }
    plan->graph.reset();
  };
  for (Phase& phase : phases_) {
    if (phase.built.earlier) compile(phase.built.earlier->get());
    compile(phase.built.last.get());
    phase.newest = phase.built.last.get();
  }
}

SinglePlans::Plan& SinglePlans::PlanOf(const Phase& phase,
                                       int64_t batch_number) const {
  const bool is_last = batch_number + 1 == batches_per_update_;
  return is_last || !phase.built.earlier ? *phase.built.last
                                         : **phase.built.earlier;
}

std::span<const MutableTensorView> SinglePlans::batch() const {
  return PlanOf(phases_[0], batch_number_).batch;
}

void SinglePlans::Run() {
  const auto at = static_cast<size_t>(batch_number_);
  // what later phases read, before the plan that holds it runs
  for (size_t i = 0; i < specs_.size() && phases_.size() > 1; ++i) {
    const MutableTensorView view = batch()[i];
    if (!kept_.empty()) {
      CopyInput(view, kept_[at][i].mutable_view());
      continue;
    }
    for (size_t p = 1; p < phases_.size(); ++p) {
      CopyInput(view, phases_[p].built.last->batch[i]);
    }
  }
  RunPhase(&phases_[0], batch_number_);
  if (IsAtEnd()) {
    for (size_t p = 1; p < phases_.size(); ++p) {
      for (int64_t number = 0; number < batches_per_update_; ++number) {
        const Plan& plan = PlanOf(phases_[p], number);
        for (size_t i = 0; i < specs_.size() && !kept_.empty(); ++i) {
          CopyInput(kept_[static_cast<size_t>(number)][i].view(),
                    plan.batch[i]);
        }
        RunPhase(&phases_[p], number);
      }
    }
  }
  batch_number_ = (batch_number_ + 1) % batches_per_update_;
}

runtime::Executor* SinglePlans::only_plan() const {
  const bool is_only = phases_.size() == 1 && batches_per_update_ == 1;
  return is_only ? phases_[0].built.last->executor.get() : nullptr;
}

void SinglePlans::RunPhase(Phase* phase, int64_t batch_number) {
  const Plan& plan = PlanOf(*phase, batch_number);
  plan.accumulation.Set(batch_number);
  plan.executor->Run();
  phase->newest = &plan;
}

TensorView SinglePlans::value(std::string_view name) const {
  const ValueNames::Place place = names_.Find(name);
  return phases_[place.phase].newest->executor->output(place.index);
}

const runtime::PlanReport& SinglePlans::report() const {
  return phases_[0].built.last->executor->report();
}

std::vector<runtime::KernelProfile> SinglePlans::profile() const {
  return phases_[0].built.last->executor->profile();
}

}  // namespace replicant::replicator
