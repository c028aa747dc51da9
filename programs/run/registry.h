#pragma once

#include "env/task_registry.h"
#include "learner/data/images_config.h"
#include "learner/workload_registry.h"
#include "replicator/strategy.h"

namespace replicant::programs {

// The named entries that a run's configuration can refer to. A user's program
// adds its own entries to the built-in ones:
//
//   int main(int argc, char** argv) {
//     auto registry = replicant::programs::Registry::BuiltIn();
//     registry.tasks.Add(SeeSawTask());
//     return replicant::programs::RunProgram(argc, argv, registry);
//   }
//
// Thread-safety: const methods of the members may run concurrently.
struct Registry {
  // task.name: the environments.
  env::TaskRegistry tasks;
  // learner.workload: agents, and models that learn without actors.
  learner::WorkloadRegistry workloads;
  // images.source: the images of models that learn from images.
  data::ImageSources images;
  // learner.replication.strategy: the ways for replicas to work together.
  replicator::StrategyRegistry strategies;

  // The 51 tasks of the Control Suite; workloads d4pg, resnet50 and sngan;
  // sources image_folder, tar_shards and rendered; the five strategies of
  // replicator/strategy.h.
  static Registry BuiltIn();
};

}  // namespace replicant::programs
