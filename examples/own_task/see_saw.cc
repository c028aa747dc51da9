#include "see_saw.h"

#include "env/rewards.h"

namespace replicant::env {
namespace {

class SeeSaw : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    tilt_ = physics.QposAddress("tilt");
    roll_ = physics.QposAddress("roll");
    cart_ = physics.BodyId("cart");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    physics.mutable_qpos()[static_cast<size_t>(tilt_)] =
        random.Uniform(-0.1, 0.1);
    physics.mutable_qpos()[static_cast<size_t>(roll_)] =
        random.Uniform(-0.5, 0.5);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("position", physics.qpos());
    writer.Array("velocity", physics.qvel());
    writer.Scalar("height", physics.BodyPosition(cart_)[2]);
  }

  double Reward(const Physics& physics) const override {
    const double centered =
        Tolerance(physics.qpos()[static_cast<size_t>(roll_)],
                  {.lower = -0.05, .upper = 0.05, .margin = 0.5});
    return centered * (4.0 + SmallControl(physics.ctrl())) / 5.0;
  }

 private:
  int tilt_ = 0, roll_ = 0;
  int cart_ = 0;
};

}  // namespace

TaskDefinition SeeSawTask(const std::filesystem::path& model) {
  return {.name = "example-see_saw",
          .model = model,
          .options = {.time_limit_s = 10.0, .control_timestep_s = 0.02},
          .make_task = TaskMaker<SeeSaw>()};
}

}  // namespace replicant::env
