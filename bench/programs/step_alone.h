#pragma once

#include <memory>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/resident_input.h"
#include "engine/runtime/variable_store.h"
#include "tools/probe/step_graph.h"

namespace replicant::learner {

// A step, or a policy, without the way of its batch: its inputs lie where its
// kernels read them, so that a run moves none of them.
class StepAlone {
 public:
  // Fills the inputs. The backend outlives the step.
  StepAlone(probe::StepGraph step, kernels::Backend& backend,
            runtime::CompileOptions options);

  void Run() { plan_->Run(); }

  const probe::StepGraph& step() const { return step_; }
  // What a learner reads after a step: losses and priorities.
  const runtime::PlanSpec& spec() const { return spec_; }
  const runtime::Executor& plan() const { return *plan_; }
  runtime::VariableStore& variables() { return variables_; }

 private:
  const probe::StepGraph step_;
  const runtime::PlanSpec spec_;
  runtime::VariableStore variables_;
  std::vector<std::unique_ptr<runtime::ResidentInput>> inputs_;
  std::unique_ptr<runtime::Executor> plan_;
};

}  // namespace replicant::learner
