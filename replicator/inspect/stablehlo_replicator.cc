#include "replicator/inspect/stablehlo_replicator.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/graph.h"
#include "replicator/inspect/inspection_input.h"
#include "replicator/inspect/inspection_step.h"

namespace replicant::replicator {
StableHloReplicator::StableHloReplicator(const ReplicationConfig& config,
                                         uint64_t seed)
    : config_(config),
      seed_(seed),
      backend_(kernels::MakeBackend("cpu", {.num_threads = config.threads})),
      variables_(*backend_, seed),
      build_phase_(config.accumulation_steps) {
  if (!config.strategy->is_synchronous) {
    throw ConfigError(fmt::format(
        "replication.strategy: {} has no module: its replicas do not make "
        "their steps together; allowed here: single, in_graph, between_graph",
        config.strategy->name));
  }
  if (config.logical_devices > 1) {
    throw ConfigError(
        fmt::format("replication.logical_devices: got {}; a module is for one "
                    "device of each replica: allowed here: 1",
                    config.logical_devices));
  }
}

std::unique_ptr<Step> StableHloReplicator::DoBuild(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options) {
  const auto* own_input = dynamic_cast<InspectionInput*>(&input);
  REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                  "Build: the input is another replicator's");
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    const auto build = [&](const Accumulation& accumulation) {
      std::string name = phases.size() == 1
                             ? options.name
                             : fmt::format("{}_{}", options.name, phase);
      if (accumulation.role == BatchRole::kEarlier) name += "_earlier";
      return BuildStableHloStep(own_input->specs(), phases[phase],
                                {.seed = seed_,
                                 .num_replicas = config_.replicas,
                                 .gradient_format = GradientFormatOf(config_),
                                 .accumulation = accumulation,
                                 .precision = options.passes.precision,
                                 .name = name});
    };
    BuiltPhase<StableHloStep> built =
        build_phase_(build, &StableHloStep::accumulates);
    if (built.earlier) AddModule(std::move(*built.earlier));
    AddModule(std::move(built.last));
  }
  return std::make_unique<InspectionStep>(
      "a step that is exported as a module does not run");
}

void StableHloReplicator::AddModule(StableHloStep step) {
  steps_.push_back(std::move(step));
  // declares what is new
  graph::Graph declarations;
  for (const graph::VariableSpec& spec : steps_.back().variables) {
    declarations.AddVariable(spec);
  }
  variables_.Declare(declarations);
}

ModuleReplicator MakeModuleReplicator(const ReplicationConfig& config,
                                      uint64_t seed) {
  auto replicator = std::make_unique<StableHloReplicator>(config, seed);
  const std::vector<StableHloStep>* steps = &replicator->steps();
  return {.replicator = std::move(replicator), .steps = steps};
}

std::unique_ptr<Input> StableHloReplicator::DoMakeInput(const InputFn& input_fn,
                                                        InputMode mode) {
  return InspectionInput::Make(this, input_fn, mode, config_.replicas);
}

}  // namespace replicant::replicator
