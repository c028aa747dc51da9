#include "env/rollout.h"

#include <fmt/format.h>

#include "base/error.h"
#include "env/model_fields.h"

namespace replicant::env {

Rollout PlayRollout(ControlEnvironment& environment, const RolloutInput& input,
                    Camera* camera) {
  const auto action_size =
      static_cast<size_t>(environment.action_spec().size());
  if (action_size == 0 || input.actions.size() % action_size != 0) {
    throw InvalidArgument(fmt::format(
        "rollout: {} numbers of actions do not divide into rows of {}",
        input.actions.size(), action_size));
  }
  for (const NamedTensorView& field : input.model_fields) {
    SetModelField(environment.mutable_physics().mutable_model(), field.name,
                  field.tensor);
  }
  if (camera != nullptr) camera->ReloadAssets(environment.physics());

  Rollout rollout;
  const auto size =
      static_cast<size_t>(environment.observation_spec().state_size());
  std::vector<double> observation(size);
  const auto record = [&](const TimeStep& step) {
    rollout.observation.insert(rollout.observation.end(), observation.begin(),
                               observation.end());
    rollout.step_type.push_back(static_cast<int64_t>(step.step_type));
    if (camera == nullptr) return;
    const size_t end = rollout.pixels.size();
    rollout.pixels.resize(end + camera->size_bytes());
    camera->Render(environment.mutable_physics(),
                   std::span(rollout.pixels).subspan(end));
  };
  TimeStep step = environment.ResetTo(input.state, {.state = observation});
  record(step);
  const size_t num_steps = input.actions.size() / action_size;
  for (size_t t = 0; t < num_steps && !step.IsLast(); ++t) {
    step = environment.Step(input.actions.subspan(t * action_size, action_size),
                            {.state = observation});
    record(step);
    rollout.reward.push_back(step.reward);
    rollout.discount.push_back(step.discount);
  }
  return rollout;
}

}  // namespace replicant::env
