#include "core/replicator/replicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/replicator/parameter_server/parameter_server_replicator.h"
#include "core/replicator/strategies/hogwild_replicator.h"
#include "core/replicator/strategies/single_replicator.h"
#include "core/replicator/strategies/step_interface.h"
#include "core/replicator/strategies/synchronous_replicator.h"

namespace replicant::replicator {

std::unique_ptr<Replicator> Replicator::Create(const ReplicationConfig& config,
                                               uint64_t seed,
                                               const ProcessPlace& place) {
  if (config.strategy == Strategy::kParameterServer) {
    return place.is_server
               ? MakeParameterServer(config, seed, place.index, place.folder)
               : MakeParameterWorker(config, seed, place.index);
  }
  if (place.is_server || place.index > 0) {
    throw ConfigError(
        "learner.replication.strategy: servers and further workers are for "
        "parameter_server");
  }
  switch (config.strategy) {
    case Strategy::kSingle: {
      if (config.accumulation_steps == 1 && config.logical_devices == 1) {
        return MakeSingleReplicator(config, seed);
      }
      // which knows how to divide an update among batches and devices
      ReplicationConfig of_one = config;
      of_one.strategy = Strategy::kInGraph;
      return MakeSynchronousReplicator(of_one, seed);
    }
    case Strategy::kInGraph:
    case Strategy::kBetweenGraph:
      return MakeSynchronousReplicator(config, seed);
    case Strategy::kHogwild:
      return MakeHogwildReplicator(config, seed);
    case Strategy::kParameterServer:
      break;
  }
  REPLICANT_CHECK(false, "Strategy {}", static_cast<int>(config.strategy));
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
