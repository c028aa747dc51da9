#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "replicator/replicator.h"

// The inputs and the values of a step function.
namespace replicant::replicator {

// A graph input for each tensor of a batch.
Inputs AddInputs(Graph& graph, const std::vector<InputSpec>& specs);

// The values of a step by name, over all of its phases.
class ValueNames {
 public:
  struct Place {
    size_t phase = 0;
    size_t index = 0;  // among the values of the phase
  };

  // Throws InvalidArgument for a name that is taken.
  void AddPhase(const std::vector<std::string>& names);
  // Throws InvalidArgument, listing the known names.
  Place Find(std::string_view name) const;

 private:
  std::vector<std::string> names_;
  std::vector<Place> places_;
  size_t num_phases_ = 0;
};

// The names of a phase's values.
std::vector<std::string> NamesOf(const StepOutputs& outputs);
// The values themselves.
std::vector<Output> ValuesOf(const StepOutputs& outputs);

}  // namespace replicant::replicator
