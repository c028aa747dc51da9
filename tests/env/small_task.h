#pragma once

#include <memory>
#include <string>

#include "base/fs.h"
#include "env/control_environment.h"
#include "env/task_registry.h"
#include "tests/support/message_of.h"

namespace replicant::env::testing {

using replicant::testing::MessageOf;

// A mass on a slide with a motor, timestep 0.01 s: small enough to be known by
// heart. Starts at U(-1, 1); the reward is the position; ends with discount 0
// beyond 5 m.
inline constexpr const char* kSmallModel = R"(<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body name="mass">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom name="mass" size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="limited" joint="slide" ctrllimited="true" ctrlrange="-2 3"/>
    <motor name="unlimited" joint="slide"/>
  </actuator>
</mujoco>
)";

class SmallTask : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    slide_ = physics.QposAddress("slide");
  }
  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    physics.mutable_data().qpos[slide_] = random.Uniform(-1.0, 1.0);
  }
  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("position", physics.qpos());
    writer.Scalar("speed", physics.qvel()[0]);
    writer.Begin("both", /*row_size=*/2);
    writer.Append(physics.qpos());
    writer.Append(physics.qvel());
  }
  double Reward(const Physics& physics) const override {
    return physics.data().qpos[slide_];
  }
  std::optional<double> Termination(const Physics& physics) const override {
    if (physics.data().qpos[slide_] > 5.0) return 0.0;
    return std::nullopt;
  }

 private:
  int slide_ = 0;
};

// Its definition, with the model in `folder`.
inline TaskDefinition DefineSmallTask(const TemporaryFolder& folder,
                                      const ControlOptions& options = {
                                          .time_limit_s = 0.1}) {
  const std::filesystem::path path = folder.path() / "small.xml";
  AtomicWriteFile(path, kSmallModel);
  return {.name = "small-push",
          .model = path,
          .options = options,
          .make_task = TaskMaker<SmallTask>()};
}

}  // namespace replicant::env::testing
