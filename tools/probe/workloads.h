#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/load.h"
#include "base/tensor/dtype.h"
#include "tools/probe/step_graph.h"

namespace replicant::probe {

// A workload whose step runs outside of a run, for tools that compare it with
// other frameworks or measure it.
struct ProbedWorkload {
  struct Built {
    StepGraph step;
    std::string resolved_yaml;
  };

  std::string name;
  // The manual of the step's configuration.
  std::function<config::Manual()> describe;
  // `dtype` is the type of variables and computation. Throws ConfigError.
  std::function<Built(config::Document document, DType dtype)> build;
};

// d4pg, resnet50 and sngan.
const std::vector<ProbedWorkload>& ProbedWorkloads();

// "d4pg, resnet50, sngan"
std::string ProbedWorkloadNames();

// Throws ConfigError that lists all names; `option` is the option that gave the
// name: "--workload".
const ProbedWorkload& FindProbedWorkload(std::string_view name,
                                         std::string_view option);

}  // namespace replicant::probe
