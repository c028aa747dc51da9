#include "agents/task_spec.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/error.h"

namespace replicant::agents {
namespace {

constexpr int64_t kColors = 3;
// What env/specs.h gives for an action without a bound.
constexpr double kUnbounded = 1e10;

}  // namespace

int64_t TaskSpec::observation_bytes() const {
  return has_pixels
             ? 0
             : observation.num_elements() * static_cast<int64_t>(sizeof(float));
}

int64_t TaskSpec::action_bytes() const {
  return action_size() * static_cast<int64_t>(sizeof(float));
}

int64_t TaskSpec::frame_bytes() const {
  return has_pixels ? observation.num_elements() / frame_stack : 0;
}

void TaskSpec::ToTaskRange(std::span<const float> action,
                           std::span<double> out) const {
  REPLICANT_CHECK_EQ(action.size(), action_minimum.size());
  REPLICANT_CHECK_EQ(out.size(), action_minimum.size());
  for (size_t i = 0; i < action.size(); ++i) {
    const double share = (static_cast<double>(action[i]) + 1.0) / 2.0;
    out[i] =
        action_minimum[i] + share * (action_maximum[i] - action_minimum[i]);
  }
}

TaskSpec MakeTaskSpec(const env::Environment& environment,
                      int64_t frame_stack) {
  const env::ActionSpec& actions = environment.action_spec();
  TaskSpec spec{.has_pixels = frame_stack > 0,
                .observation = Shape({}),
                .frame_stack = frame_stack > 0 ? frame_stack : 1,
                .action_minimum = actions.minimum,
                .action_maximum = actions.maximum};
  for (size_t i = 0; i < actions.minimum.size(); ++i) {
    if (actions.minimum[i] <= -kUnbounded || actions.maximum[i] >= kUnbounded) {
      throw ConfigError(fmt::format(
          "action {} of the task has no bounds; an agent needs them", i));
    }
  }
  const env::ObservationSpec& observations = environment.observation_spec();
  if (!spec.has_pixels) {
    spec.observation = Shape({observations.state_size()});
    return spec;
  }
  spec.observation = observations.Find("pixels").shape;
  if (spec.observation[2] != kColors * frame_stack) {
    throw ConfigError(fmt::format(
        "pixels are {}; a stack of {} frames has {} channels",
        spec.observation.ToString(), frame_stack, kColors * frame_stack));
  }
  return spec;
}

}  // namespace replicant::agents
