#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/config/load.h"
#include "core/config/manual.h"
#include "learner/workloads/workload_graph.h"

namespace replicant::learner {

// A graph with the configuration that it was built from.
struct LoadedWorkload {
  WorkloadGraph workload;
  std::string resolved_yaml;
};

// One of the workloads that can be built without the system around them.
struct WorkloadKind {
  std::string_view name;
  // Of its configuration.
  config::Manual (*describe)();
  // `dtype` is that of variables and computation. Throws ConfigError.
  LoadedWorkload (*load)(config::Document document, DType dtype);
};

std::span<const WorkloadKind> AllWorkloads();
// "d4pg, resnet50, sngan"
std::string WorkloadNames();
// Throws ConfigError that names all. `option` is what the name was given to.
const WorkloadKind& FindWorkload(std::string_view name,
                                 std::string_view option);

}  // namespace replicant::learner
