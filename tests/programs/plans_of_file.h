#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "programs/plan/plan_program.h"

namespace replicant::programs {

// The plans of a file of configs/ in a precision, with further settings; on the
// described H100, unless a factory of backends is given.
inline std::vector<replicator::StepPlan> PlansOfFile(
    const std::string& file, const std::string& precision,
    const kernels::BackendFactory& make_backend = {},
    std::vector<std::string> settings = {}) {
  settings.push_back("learner.precision=" + precision);
  config::Document document = config::Document::FromFile(
      std::filesystem::path(REPLICANT_SOURCE_DIR) / "configs" / file, settings);
  const Registry registry = Registry::BuiltIn();
  const config::Loaded<RunConfig> loaded =
      LoadRunConfig(std::move(document), registry);
  const Commands commands = Commands::InFolder(".");
  const Invocation invocation{
      .registry = registry, .commands = commands, .loaded = loaded};
  return make_backend ? PlansOf(invocation, make_backend) : PlansOf(invocation);
}

}  // namespace replicant::programs
