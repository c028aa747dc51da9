#include "tools/probe/workloads.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "tools/probe/d4pg_step.h"
#include "tools/probe/resnet_step.h"
#include "tools/probe/sngan_step.h"

namespace replicant::probe {
namespace {

// `build` is the BuildStepGraph() of the configuration's namespace.
template <typename Config>
ProbedWorkload Define(const std::string& name,
                      StepGraph (*build)(const Config&, DType)) {
  return {
      .name = name,
      .describe = &config::Describe<Config>,
      .build = [build](config::Document document,
                       DType dtype) -> ProbedWorkload::Built {
        auto loaded = config::Load<Config>(std::move(document));
        return {build(loaded.config, dtype), std::move(loaded.resolved_yaml)};
      }};
}

}  // namespace

const std::vector<ProbedWorkload>& ProbedWorkloads() {
  static const std::vector<ProbedWorkload> workloads = {
      Define("d4pg", &d4pg::BuildStepGraph),
      Define("resnet50", &resnet::BuildStepGraph),
      Define("sngan", &sngan::BuildStepGraph)};
  return workloads;
}

std::string ProbedWorkloadNames() {
  std::string names;
  for (const ProbedWorkload& workload : ProbedWorkloads()) {
    names += (names.empty() ? "" : ", ") + workload.name;
  }
  return names;
}

const ProbedWorkload& FindProbedWorkload(std::string_view name,
                                         std::string_view option) {
  for (const ProbedWorkload& workload : ProbedWorkloads()) {
    if (workload.name == name) return workload;
  }
  throw ConfigError(fmt::format("{} {}: want one of {}", option, name,
                                ProbedWorkloadNames()));
}

}  // namespace replicant::probe
