#include "replicator/steps/stablehlo_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "replicator/calls/stablehlo_collectives.h"

namespace replicant::replicator {
namespace {

// The first lines that differ.
[[noreturn]] void FailOnDifference(int replica, std::string_view first,
                                   std::string_view other) {
  const auto at = static_cast<size_t>(std::ranges::mismatch(first, other).in1 -
                                      first.begin());
  const auto line_at = [at](std::string_view text) {
    const size_t begin = text.rfind('\n', at == 0 ? 0 : at - 1) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  throw InvalidArgument(fmt::format(
      "replicas 0 and {} compute differently, and a module is for all: '{}' "
      "and '{}'; hint: a step may depend on its replica through the batch, "
      "random numbers and primitives only",
      replica, line_at(first), line_at(other)));
}

}  // namespace

StableHloStep BuildStableHloStep(const std::vector<InputSpec>& specs,
                                 const StepFn& step_fn,
                                 const StableHloStepOptions& options) {
  StableHloStep step{.name = options.name};
  for (int replica = 0; replica < options.num_replicas; ++replica) {
    ReplicaProgram built = BuildReplicaProgram(
        {.id = replica, .count = options.num_replicas}, specs, step_fn,
        {.seed = options.seed,
         .gradient_format = options.gradient_format,
         .accumulation = options.accumulation});
    exporting::StableHloModule module = exporting::ToStableHlo(
        built.program, {.name = options.name,
                        .output_names = built.value_names,
                        .num_replicas = options.num_replicas,
                        .precision = options.precision,
                        .forms = CollectiveForms()});
    step.draws.push_back(graph::ExtractProgram(
        *module.draws.graph, module.draws.outputs, module.draws.updates));
    if (replica == 0) {
      step.accumulates = !built.sums.empty();
      step.module = std::move(module);
      step.variables = built.program.graph->variables();
    } else if (module.text != step.module.text) {
      FailOnDifference(replica, step.module.text, module.text);
    }
  }
  return step;
}

}  // namespace replicant::replicator
