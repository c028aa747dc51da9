#include "env/tasks/hopper.h"

#include <array>
#include <cmath>

#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

// Height of the torso above the foot, in m.
constexpr double kStandHeight = 0.6;
constexpr double kMaxHeight = 2.0;
constexpr double kHopSpeed = 2.0;  // m/s

class Hopper : public Task {
 public:
  explicit Hopper(bool is_hopping) : is_hopping_(is_hopping) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    torso_ = physics.BodyId("torso");
    foot_ = physics.BodyId("foot");
    velocity_ = physics.SensorAddress("torso_subtreelinvel");
    touches_ = {physics.SensorAddress("touch_toe"),
                physics.SensorAddress("touch_heel")};
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    RandomizeJoints(physics, random);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    // all but the horizontal position
    writer.Array("position", physics.QposFrom(1));
    writer.Array("velocity", physics.qvel());
    writer.Begin("touch");
    for (const int address : touches_) {
      writer.Append(std::log1p(physics.data().sensordata[address]));
    }
  }

  double Reward(const Physics& physics) const override {
    // heights of the centres of mass
    const double* xipos = physics.data().xipos;
    const double height = xipos[3 * torso_ + 2] - xipos[3 * foot_ + 2];
    const double standing =
        Tolerance(height, {.lower = kStandHeight, .upper = kMaxHeight});
    if (!is_hopping_) {
      return standing * (SmallControl(physics.ctrl()) + 4.0) / 5.0;
    }
    const double hopping = Tolerance(physics.data().sensordata[velocity_],
                                     {.lower = kHopSpeed,
                                      .upper = kInfinity,
                                      .margin = kHopSpeed / 2,
                                      .sigmoid = Sigmoid::kLinear,
                                      .value_at_margin = 0.5});
    return standing * hopping;
  }

 private:
  bool is_hopping_;
  int torso_ = 0, foot_ = 0;
  int velocity_ = 0;
  std::array<int, 2> touches_{};
};

TaskDefinition Define(const char* name, bool is_hopping) {
  return {.name = name,
          .model = "hopper.xml",
          .options = {.time_limit_s = 20.0, .control_timestep_s = 0.02},
          .make_task = TaskMaker<Hopper>(is_hopping)};
}

}  // namespace

std::vector<TaskDefinition> HopperTasks() {
  return {Define("hopper-stand", /*is_hopping=*/false),
          Define("hopper-hop", /*is_hopping=*/true)};
}

}  // namespace replicant::env
