#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/replicator/replicator.h"

// What every strategy does alike around a step function.
namespace replicant::replicator {

// Throws InvalidArgument "<what> '<name>'; there are: a, b".
[[noreturn]] void ThrowUnknownName(std::string_view what, std::string_view name,
                                   const std::vector<std::string>& known);

// A graph input for each tensor of a batch.
Inputs AddInputs(Graph& graph, const std::vector<InputSpec>& specs);

// The place of a value. Throws InvalidArgument, naming those that there are.
size_t FindValue(const std::vector<std::string>& names, std::string_view name);

// The names of the values. Throws InvalidArgument for one that is there twice.
std::vector<std::string> ValueNames(const StepOutputs& outputs);

}  // namespace replicant::replicator
