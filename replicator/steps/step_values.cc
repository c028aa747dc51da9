#include "replicator/steps/step_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "replicator/unknown_name.h"

namespace replicant::replicator {

Inputs AddInputs(Graph& graph, const std::vector<InputSpec>& specs) {
  std::vector<std::pair<std::string, Output>> tensors;
  tensors.reserve(specs.size());
  for (const InputSpec& spec : specs) {
    tensors.emplace_back(spec.name,
                         graph.Input(spec.name, spec.dtype, spec.shape));
  }
  return Inputs(std::move(tensors));
}

void ValueNames::AddPhase(const std::vector<std::string>& names) {
  const size_t phase = num_phases_++;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::find(names_, names[i]) != names_.end()) {
      throw InvalidArgument(fmt::format(
          "the step function gives two values called '{}'", names[i]));
    }
    names_.push_back(names[i]);
    places_.push_back({.phase = phase, .index = i});
  }
}

ValueNames::Place ValueNames::Find(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) {
    ThrowUnknownName("step has no value", name, names_);
  }
  return places_[static_cast<size_t>(found - names_.begin())];
}

std::vector<std::string> NamesOf(const StepOutputs& outputs) {
  std::vector<std::string> names;
  names.reserve(outputs.values.size());
  for (const auto& [name, output] : outputs.values) names.push_back(name);
  return names;
}

std::vector<Output> ValuesOf(const StepOutputs& outputs) {
  std::vector<Output> values;
  values.reserve(outputs.values.size());
  for (const auto& [name, output] : outputs.values) values.push_back(output);
  return values;
}

}  // namespace replicant::replicator
