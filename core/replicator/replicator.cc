#include "core/replicator/replicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/replicator/checked_pipeline.h"
#include "core/replicator/strategies/step_interface.h"
#include "core/replicator/strategy.h"

namespace replicant::replicator {

std::unique_ptr<Replicator> Replicator::Create(const ReplicationConfig& config,
                                               uint64_t seed,
                                               const ProcessPlace& place) {
  return Create(config, seed, place, kernels::MakeBackend);
}

std::unique_ptr<Replicator> Replicator::Create(
    const ReplicationConfig& config, uint64_t seed, const ProcessPlace& place,
    const kernels::BackendFactory& make_backend) {
  const Strategy& strategy = *config.strategy;
  const bool has_place =
      strategy.has_servers ||
      (!place.is_server && (place.index == 0 || config.num_workers() > 1));
  if (!has_place) {
    throw ConfigError(
        "replication.strategy: servers are for parameter_server, further "
        "workers for parameter_server and for between_graph with communicator "
        "tcp");
  }
  return strategy.make({.config = config,
                        .seed = seed,
                        .place = place,
                        .make_backend = make_backend});
}

std::unique_ptr<Input> Replicator::MakeInput(const InputFn& input_fn,
                                             InputMode mode) {
  return DoMakeInput(
      [&input_fn](const InputContext& context) {
        return std::make_unique<CheckedPipeline>(input_fn(context));
      },
      mode);
}

Output Inputs::at(std::string_view name, CallSite site) const {
  std::vector<std::string> known;
  for (const auto& [known_name, output] : tensors_) {
    if (known_name == name) return output;
    known.push_back(known_name);
  }
  ThrowUnknownName(site.ToString() + ": the batch has no", name, known);
}

void ThrowUnknownName(std::string_view what, std::string_view name,
                      const std::vector<std::string>& known) {
  throw InvalidArgument(fmt::format("{} '{}'; there are: {}", what, name,
                                    fmt::join(known, ", ")));
}

Inputs AddInputs(Graph& graph, const std::vector<InputSpec>& specs) {
  std::vector<std::pair<std::string, Output>> tensors;
  tensors.reserve(specs.size());
  for (const InputSpec& spec : specs) {
    tensors.emplace_back(spec.name,
                         graph.Input(spec.name, spec.dtype, spec.shape));
  }
  return Inputs(std::move(tensors));
}

size_t FindValue(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    ThrowUnknownName("step has no value", name, names);
  }
  return static_cast<size_t>(found - names.begin());
}

std::vector<std::string> ValueNames(const StepOutputs& outputs) {
  std::vector<std::string> names;
  names.reserve(outputs.values.size());
  for (const auto& [name, output] : outputs.values) {
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      throw InvalidArgument(
          fmt::format("the step function gives two values called '{}'", name));
    }
    names.push_back(name);
  }
  return names;
}

}  // namespace replicant::replicator
