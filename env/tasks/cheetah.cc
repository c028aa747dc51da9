#include "env/tasks/cheetah.h"

#include <fmt/format.h>

#include "base/error.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr double kRunSpeed = 10.0;  // m/s
// Physics steps in which the drawn pose falls to the floor.
constexpr int kSettlingSteps = 200;

class Cheetah : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    const mjModel& model = physics.model();
    if (model.nq != model.njnt) {
      throw InvalidArgument(fmt::format(
          "{}: the model has {} joints with {} numbers, want one number each",
          physics.name(), model.njnt, model.nq));
    }
    velocity_ = physics.SensorAddress("torso_subtreelinvel");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    // every joint has one number, so that its place is that of the joint
    const mjModel& model = physics.model();
    double* qpos = physics.mutable_data().qpos;
    for (int joint = 0; joint < model.njnt; ++joint) {
      if (model.jnt_limited[joint] == 0) continue;
      qpos[joint] = random.Uniform(model.jnt_range[2 * joint],
                                   model.jnt_range[2 * joint + 1]);
    }
    // the first of these steps still moves with the forces of the default
    // pose: the suite makes no forward pass here
    if (physics.Step(kSettlingSteps) != PhysicsStatus::kOk) {
      throw Error(physics.name() + ": the start diverged while it settled");
    }
    physics.mutable_data().time = 0.0;
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    // all but the horizontal position
    writer.Array("position", physics.QposFrom(1));
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    return Tolerance(physics.data().sensordata[velocity_],
                     {.lower = kRunSpeed,
                      .upper = kInfinity,
                      .margin = kRunSpeed,
                      .sigmoid = Sigmoid::kLinear,
                      .value_at_margin = 0.0});
  }

 private:
  int velocity_ = 0;
};

}  // namespace

std::vector<TaskDefinition> CheetahTasks() {
  return {{.name = "cheetah-run",
           .model = "cheetah.xml",
           .options = {.time_limit_s = 10.0},
           .make_task = TaskMaker<Cheetah>()}};
}

}  // namespace replicant::env
