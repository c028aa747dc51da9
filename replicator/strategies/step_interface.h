#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "replicator/replicator.h"

// Helpers around a step function that all strategies share.
namespace replicant::replicator {

// Throws InvalidArgument "<what> '<name>'; there are: a, b".
[[noreturn]] void ThrowUnknownName(std::string_view what, std::string_view name,
                                   const std::vector<std::string>& known);

// A graph input for each tensor of a batch.
Inputs AddInputs(Graph& graph, const std::vector<InputSpec>& specs);

// A step that was built for inspection and does not run: Run() and value()
// throw InvalidArgument with `reason`.
class UnrunStep : public Step {
 public:
  explicit UnrunStep(std::string reason) : reason_(std::move(reason)) {}

  NextResult Run(Clock::TimePoint /*deadline*/) override { Fail(); }
  TensorView value(std::string_view /*name*/) const override { Fail(); }
  const runtime::PlanReport& report() const override { return report_; }

 private:
  [[noreturn]] void Fail() const { throw InvalidArgument(reason_); }

  const std::string reason_;
  runtime::PlanReport report_;
};

// The values of a step by name, over all of its parts.
class ValueNames {
 public:
  struct Place {
    size_t part = 0;
    size_t index = 0;  // among the values of the part
  };

  // Throws InvalidArgument for a name that is taken.
  void AddPart(const std::vector<std::string>& names);
  // Throws InvalidArgument, listing the known names.
  Place Find(std::string_view name) const;

 private:
  std::vector<std::string> names_;
  std::vector<Place> places_;
  size_t num_parts_ = 0;
};

// The names of a part's values.
std::vector<std::string> NamesOf(const StepOutputs& outputs);
// The values themselves.
std::vector<Output> ValuesOf(const StepOutputs& outputs);

}  // namespace replicant::replicator
