#include "replicator/replicator.h"

#include "base/error.h"
#include "replicator/checked_pipeline.h"
#include "replicator/unknown_name.h"

namespace replicant::replicator {

std::unique_ptr<Input> Replicator::MakeInput(const InputFn& input_fn,
                                             InputMode mode) {
  return DoMakeInput(
      [&input_fn](const InputContext& context) {
        return std::make_unique<CheckedPipeline>(input_fn(context));
      },
      mode);
}

std::unique_ptr<Step> Replicator::BuildJoint(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options) {
  if (phases.empty()) {
    throw InvalidArgument(
        "BuildJoint: a step has one phase at least, got none");
  }
  return DoBuild(input, phases, options);
}

Output Inputs::at(std::string_view name, CallSite site) const {
  std::vector<std::string> known;
  for (const auto& [known_name, output] : tensors_) {
    if (known_name == name) return output;
    known.push_back(known_name);
  }
  ThrowUnknownName(site.ToString() + ": the batch has no", name, known);
}

}  // namespace replicant::replicator
