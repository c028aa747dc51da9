#include "replicator/replicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "replicator/checked_pipeline.h"
#include "replicator/strategies/step_interface.h"
#include "replicator/strategy.h"

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

std::unique_ptr<Step> Replicator::BuildJoint(
    Input& input, const std::vector<StepFn>& parts,
    const runtime::CompileOptions& options) {
  if (parts.empty()) {
    throw InvalidArgument("BuildJoint: a step has one part at least, got none");
  }
  return DoBuild(input, parts, options);
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

void ValueNames::AddPart(const std::vector<std::string>& names) {
  const size_t part = num_parts_++;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::find(names_, names[i]) != names_.end()) {
      throw InvalidArgument(fmt::format(
          "the step function gives two values called '{}'", names[i]));
    }
    names_.push_back(names[i]);
    places_.push_back({.part = part, .index = i});
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
