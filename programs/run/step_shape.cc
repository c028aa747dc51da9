#include "programs/run/step_shape.h"

namespace replicant::programs {

replay::StepShape StepShapeOf(const agents::TaskSpec& task) {
  return {.observation_bytes = task.observation_bytes(),
          .action_bytes = task.action_bytes(),
          .frame_bytes = task.frame_bytes()};
}

}  // namespace replicant::programs
