#include "programs/registry.h"

#include "env/tasks/suite.h"
#include "learner/workloads/built_in.h"

namespace replicant::programs {

Registry Registry::BuiltIn() {
  return {.tasks = env::TaskRegistry(env::SuiteTasks()),
          .workloads = learner::BuiltInWorkloads(),
          .strategies = replicator::StrategyRegistry::BuiltIn()};
}

}  // namespace replicant::programs
