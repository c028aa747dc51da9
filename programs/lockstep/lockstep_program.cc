#include "programs/lockstep/lockstep_program.h"

#include "programs/lockstep/lockstep_training.h"

namespace replicant::programs {

Program LockstepProgram() {
  return {.name = "lockstep",
          .about = "Trains in one process, in a fixed order.",
          .run = [](const Invocation& invocation) {
            TrainInLockstep(invocation.config(), invocation.registry.tasks,
                            invocation.loaded.resolved_yaml);
            return 0;
          }};
}

}  // namespace replicant::programs
