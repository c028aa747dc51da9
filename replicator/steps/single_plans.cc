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
                         const std::vector<InputSpec>& specs,
                         const Options& options)
    : accumulation_steps_(options.accumulation_steps), specs_(specs) {
  for (const StepFn& step_fn : phases) {
    Accumulation accumulation;
    std::vector<std::string> names;
    Phase phase;
    if (accumulation_steps_ > 1) {
      accumulation = {
          .steps = accumulation_steps_,
          .phase_number = options.first_phase_number + num_accumulating_phases_,
          .role = BatchRole::kEarlier};
      phase.earlier =
          BuildPlan(step_fn, specs, options.seed, accumulation, &names);
      accumulation.role = BatchRole::kLast;
    }
    if (phase.earlier) {
      ++num_accumulating_phases_;
    } else {
      accumulation = {};
    }
    phase.last = BuildPlan(step_fn, specs, options.seed, accumulation, &names);
    names_.AddPhase(names);
    phases_.push_back(std::move(phase));
  }
  if (num_accumulating_phases_ == 0) accumulation_steps_ = 1;
  if (phases_.size() > 1 && accumulation_steps_ > 1) {
    kept_.resize(static_cast<size_t>(accumulation_steps_));
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
    if (phase.earlier) graphs.push_back(phase.earlier->graph.get());
    graphs.push_back(phase.last->graph.get());
  }
  return graphs;
}

void SinglePlans::Compile(runtime::VariableStore& variables,
                          const runtime::CompileOptions& options) {
  for (Phase& phase : phases_) {
    for (Plan* const plan : {phase.earlier.get(), phase.last.get()}) {
      if (plan == nullptr) continue;
      plan->executor = std::make_unique<runtime::Executor>(
          *plan->graph, plan->spec, variables, options);
      for (const InputSpec& spec : specs_) {
        plan->batch.push_back(plan->executor->input(spec.name));
      }
      for (const std::string& name : plan->executor->input_names()) {
        // a name may begin with scopes
        if (name.ends_with(kIsFirstBatch)) {
          plan->is_first.push_back(plan->executor->input(name));
        }
        if (name.ends_with(kBatchNumber)) {
          plan->batch_number.push_back(plan->executor->input(name));
        }
      }
      plan->graph.reset();
    }
    phase.newest = phase.last.get();
  }
}

SinglePlans::Plan& SinglePlans::PlanOf(const Phase& phase,
                                       int64_t batch_number) const {
  const bool is_last = batch_number + 1 == accumulation_steps_;
  return is_last || !phase.earlier ? *phase.last : *phase.earlier;
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
      CopyInput(view, phases_[p].last->batch[i]);
    }
  }
  RunPhase(&phases_[0], batch_number_);
  if (IsAtEnd()) {
    for (size_t p = 1; p < phases_.size(); ++p) {
      for (int64_t number = 0; number < accumulation_steps_; ++number) {
        const Plan& plan = PlanOf(phases_[p], number);
        for (size_t i = 0; i < specs_.size() && !kept_.empty(); ++i) {
          CopyInput(kept_[static_cast<size_t>(number)][i].view(),
                    plan.batch[i]);
        }
        RunPhase(&phases_[p], number);
      }
    }
  }
  batch_number_ = (batch_number_ + 1) % accumulation_steps_;
}

runtime::Executor* SinglePlans::only_plan() const {
  const bool is_only = phases_.size() == 1 && accumulation_steps_ == 1;
  return is_only ? phases_[0].last->executor.get() : nullptr;
}

void SinglePlans::RunPhase(Phase* phase, int64_t batch_number) {
  const Plan& plan = PlanOf(*phase, batch_number);
  for (const MutableTensorView& view : plan.is_first) {
    view.Span<bool>()[0] = batch_number == 0;
  }
  for (const MutableTensorView& view : plan.batch_number) {
    view.Span<int64_t>()[0] = batch_number;
  }
  plan.executor->Run();
  phase->newest = &plan;
}

TensorView SinglePlans::value(std::string_view name) const {
  const ValueNames::Place place = names_.Find(name);
  return phases_[place.phase].newest->executor->output(place.index);
}

const runtime::PlanReport& SinglePlans::report() const {
  return phases_[0].last->executor->report();
}

std::vector<runtime::KernelProfile> SinglePlans::profile() const {
  return phases_[0].last->executor->profile();
}

}  // namespace replicant::replicator
