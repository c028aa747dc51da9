#include "replicator/steps/gradient_sums.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/state.h"

namespace replicant::replicator {

void AccumulationInputs::Add(std::string_view name, MutableTensorView view) {
  if (name.ends_with(kIsFirst)) is_first_.push_back(view);
  if (name.ends_with(kNumber)) number_.push_back(view);
}

void AccumulationInputs::Set(int64_t number) const {
  for (const MutableTensorView& view : is_first_) {
    view.Span<bool>()[0] = number == 0;
  }
  for (const MutableTensorView& view : number_) {
    view.Span<int64_t>()[0] = number;
  }
}

Output GradientSums::Mean(Output gradient, const Reduce& reduce,
                          CallSite site) {
  if (accumulation_.role == BatchRole::kOnly) return reduce(gradient);
  const Graph::DeviceScope device(graph_, gradient.producer().device);
  const VariableId sum = graph_.AddVariable(
      {.name = fmt::format("accumulation/{}/{}", accumulation_.phase_number,
                           sums_.size()),
       .dtype = gradient.dtype(),
       .shape = gradient.shape(),
       .is_trainable = false,
       .agreement = graph::ReplicaAgreement::kPerReplica},
      site);
  sums_.insert(sum);
  const Output total = graph::Add(graph_.Read(sum, site), gradient, site);
  if (accumulation_.role == BatchRole::kLast) {
    return reduce(graph::Mul(total, 1.0 / accumulation_.steps, site));
  }
  // overwrites what an earlier update has left
  const Output value =
      graph::Where(HostInput(AccumulationInputs::kIsFirst, DType::kBool),
                   gradient, total, site);
  accumulations_.push_back(graph::Assign(graph_, sum, value, site));
  return gradient;
}

Output GradientSums::RowOffset(int64_t rows_of_all) {
  if (accumulation_.role == BatchRole::kOnly) return graph::kNoGradient;
  return graph::Mul(HostInput(AccumulationInputs::kNumber, DType::kI64),
                    static_cast<double>(rows_of_all));
}

Output GradientSums::HostInput(const char* name, DType dtype) {
  Output& input = host_inputs_[name];
  if (!input.is_valid()) input = graph_.Input(name, dtype, Shape({}));
  return input;
}

void GradientSums::CheckAccumulates(const graph::Program& program) const {
  if (accumulations_.empty()) {
    throw InvalidArgument(
        "accumulation_steps: the step function has no gradients to add up; "
        "hint: give them to MeanGradients() or WrapOptimizer()");
  }
  for (const graph::Node& node : program.graph->nodes()) {
    for (const VariableId variable : node.updates) {
      // declarations keep their numbers
      if (sums_.contains(variable)) continue;
      throw InvalidArgument(fmt::format(
          "{}: accumulation_steps: '{}' is updated on the way to a gradient or "
          "a value, which would happen for every batch; hint: take its value "
          "from before the update, or make the update and what follows it "
          "phases of their own (BuildJoint)",
          node.site.ToString(), program.graph->variable(variable).name));
    }
  }
}

}  // namespace replicant::replicator
