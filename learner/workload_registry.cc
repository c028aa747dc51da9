#include "learner/workload_registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace replicant::learner {

void WorkloadRegistry::Add(WorkloadDef workload) {
  for (const auto& known : workloads_) {
    if (known->name == workload.name || known->section == workload.section) {
      throw InvalidArgument(fmt::format(
          "WorkloadRegistry: workload '{}' with section '{}': there is "
          "workload '{}' with section '{}' already",
          workload.name, workload.section, known->name, known->section));
    }
  }
  workloads_.push_back(
      std::make_shared<const WorkloadDef>(std::move(workload)));
}

std::shared_ptr<const WorkloadDef> WorkloadRegistry::Find(
    std::string_view name) const {
  for (const auto& workload : workloads_) {
    if (workload->name == name) return workload;
  }
  return nullptr;
}

std::string WorkloadRegistry::Names() const {
  std::vector<std::string_view> names;
  for (const auto& workload : workloads_) names.push_back(workload->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace replicant::learner
