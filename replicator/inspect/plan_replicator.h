#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/plan_report.h"
#include "replicator/replicator.h"

// The plans of steps, for inspection.
namespace replicant::replicator {

// The plan of a phase of a step of a workload.
struct StepPlan {
  // runtime::CompileOptions::name; with "_1" and so on for later phases.
  std::string name;
  runtime::PlanReport report;
};

// A replicator that compiles the steps of a workload for one replica but does
// not run them. Calls between replicas are left out.
struct PlanReplicator {
  std::unique_ptr<Replicator> replicator;
  // The plans that it has compiled so far. Owned by the replicator.
  const std::vector<StepPlan>* plans = nullptr;
};

// `make_backend` is called once. Throws what it throws.
PlanReplicator MakePlanReplicator(const ReplicationConfig& config,
                                  uint64_t seed,
                                  const kernels::BackendFactory& make_backend);

}  // namespace replicant::replicator
