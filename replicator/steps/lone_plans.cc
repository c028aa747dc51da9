#include "replicator/steps/lone_plans.h"

#include <cstring>
#include <utility>

#include "engine/graph/passes/passes.h"
#include "engine/nn/single_replica.h"

namespace replicant::replicator {
namespace {

// A lone replica whose updates may learn from several batches.
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

LonePlans::LonePlans(const std::vector<StepFn>& parts,
                     const std::vector<InputSpec>& specs,
                     const Options& options)
    : accumulation_steps_(options.accumulation_steps), specs_(specs) {
  for (const StepFn& step_fn : parts) {
    Accumulation accumulation;
    std::vector<std::string> names;
    Part part;
    if (accumulation_steps_ > 1) {
      accumulation = {
          .steps = accumulation_steps_,
          .part_number = options.first_part_number + num_accumulating_parts_,
          .role = BatchRole::kEarlier};
      part.earlier =
          BuildPlan(step_fn, specs, options.seed, accumulation, &names);
      accumulation.role = BatchRole::kLast;
    }
    if (part.earlier) {
      ++num_accumulating_parts_;
    } else {
      accumulation = {};
    }
    part.last = BuildPlan(step_fn, specs, options.seed, accumulation, &names);
    names_.AddPart(names);
    parts_.push_back(std::move(part));
  }
  if (num_accumulating_parts_ == 0) accumulation_steps_ = 1;
  if (parts_.size() > 1 && accumulation_steps_ > 1) {
    kept_.resize(static_cast<size_t>(accumulation_steps_));
    for (auto& batch : kept_) {
      for (const InputSpec& spec : specs_) {
        batch.emplace_back(spec.dtype, spec.shape);
      }
    }
  }
}

std::unique_ptr<LonePlans::Plan> LonePlans::BuildPlan(
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

std::vector<const Graph*> LonePlans::graphs() const {
  std::vector<const Graph*> graphs;
  for (const Part& part : parts_) {
    if (part.earlier) graphs.push_back(part.earlier->graph.get());
    graphs.push_back(part.last->graph.get());
  }
  return graphs;
}

void LonePlans::Compile(runtime::VariableStore& variables,
                        const runtime::CompileOptions& options) {
  for (Part& part : parts_) {
    for (Plan* const plan : {part.earlier.get(), part.last.get()}) {
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
    part.newest = part.last.get();
  }
}

LonePlans::Plan& LonePlans::PlanOf(const Part& part,
                                   int64_t batch_number) const {
  const bool is_last = batch_number + 1 == accumulation_steps_;
  return is_last || !part.earlier ? *part.last : *part.earlier;
}

std::span<const MutableTensorView> LonePlans::batch() const {
  return PlanOf(parts_[0], batch_number_).batch;
}

void LonePlans::Run() {
  const auto at = static_cast<size_t>(batch_number_);
  // what later parts read, before the plan that holds it runs
  for (size_t i = 0; i < specs_.size() && parts_.size() > 1; ++i) {
    const MutableTensorView view = batch()[i];
    if (!kept_.empty()) {
      CopyInput(view, kept_[at][i].mutable_view());
      continue;
    }
    for (size_t p = 1; p < parts_.size(); ++p) {
      CopyInput(view, parts_[p].last->batch[i]);
    }
  }
  RunPart(&parts_[0], batch_number_);
  if (IsAtEnd()) {
    for (size_t p = 1; p < parts_.size(); ++p) {
      for (int64_t number = 0; number < accumulation_steps_; ++number) {
        const Plan& plan = PlanOf(parts_[p], number);
        for (size_t i = 0; i < specs_.size() && !kept_.empty(); ++i) {
          CopyInput(kept_[static_cast<size_t>(number)][i].view(),
                    plan.batch[i]);
        }
        RunPart(&parts_[p], number);
      }
    }
  }
  batch_number_ = (batch_number_ + 1) % accumulation_steps_;
}

runtime::Executor* LonePlans::only_plan() const {
  const bool is_only = parts_.size() == 1 && accumulation_steps_ == 1;
  return is_only ? parts_[0].last->executor.get() : nullptr;
}

void LonePlans::RunPart(Part* part, int64_t batch_number) {
  const Plan& plan = PlanOf(*part, batch_number);
  for (const MutableTensorView& view : plan.is_first) {
    view.Span<bool>()[0] = batch_number == 0;
  }
  for (const MutableTensorView& view : plan.batch_number) {
    view.Span<int64_t>()[0] = batch_number;
  }
  plan.executor->Run();
  part->newest = &plan;
}

TensorView LonePlans::value(std::string_view name) const {
  const ValueNames::Place place = names_.Find(name);
  return parts_[place.part].newest->executor->output(place.index);
}

const runtime::PlanReport& LonePlans::report() const {
  return parts_[0].last->executor->report();
}

std::vector<runtime::KernelProfile> LonePlans::profile() const {
  return parts_[0].last->executor->profile();
}

}  // namespace replicant::replicator
