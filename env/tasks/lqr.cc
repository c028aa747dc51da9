#include "env/tasks/lqr.h"

#include <cmath>
#include <numbers>
#include <string>

#include "env/model_edit.h"
#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr double kControlCost = 0.1;
constexpr double kTerminalNorm = 1e-6;
// Range of the springs, in N/m.
constexpr double kMinStiffness = 15.0;
constexpr double kMaxStiffness = 25.0;

double SquaredNorm(std::span<const double> v) {
  double sum = 0.0;
  for (const double value : v) sum += value * value;
  return sum;
}

class Lqr : public Task {
 public:
  void Bind(Physics& physics, RandomStream& random) override {
    mjModel& model = physics.mutable_model();
    for (int joint = 0; joint < model.njnt; ++joint) {
      // a polynomial with only the linear term
      model.jnt_stiffness[joint] = random.Uniform(kMinStiffness, kMaxStiffness);
    }
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    const std::span<double> qpos = physics.mutable_qpos();
    RandomDirection(random, qpos);
    for (double& q : qpos) q *= std::numbers::sqrt2;
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("position", physics.qpos());
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const double state_cost = 0.5 * SquaredNorm(physics.qpos());
    const double control_cost = 0.5 * SquaredNorm(physics.ctrl());
    return 1.0 - (state_cost + kControlCost * control_cost);
  }

  std::optional<double> Termination(const Physics& physics) const override {
    const double norm =
        std::sqrt(SquaredNorm(physics.qpos()) + SquaredNorm(physics.qvel()));
    if (norm < kTerminalNorm) return 0.0;
    return std::nullopt;
  }
};

void AddBodies(mjSpec& spec, int num_bodies, int num_actuators) {
  const mjsDefault* settings = mjs_getSpecDefault(&spec);
  mjsBody* parent = &FindBody(spec, "world");
  for (int i = 0; i < num_bodies; ++i) {
    const std::string number = std::to_string(i);
    mjsBody* body = mjs_addBody(parent, nullptr);
    SetName(body->element, "body_" + number);
    body->pos[0] = 0.25;
    if (i == 0) body->pos[2] = 0.1;
    SetName(mjs_addJoint(body, settings)->element, "joint_" + number);
    SetName(mjs_addGeom(body, settings)->element, "geom_" + number);
    SetName(mjs_addSite(body, settings)->element, "site_" + number);
    parent = body;

    if (i < num_actuators) {
      mjsActuator* motor = mjs_addActuator(&spec, settings);
      SetName(motor->element, "motor_" + number);
      mjs_setToMotor(motor);
      motor->trntype = mjTRN_JOINT;
      mjs_setString(motor->target, ("joint_" + number).c_str());
    }
    // visual only
    if (i < num_bodies - 1) {
      mjsTendon* tendon = mjs_addTendon(&spec, settings);
      SetName(tendon->element, "tendon_" + number);
      mjs_wrapSite(tendon, ("site_" + number).c_str());
      mjs_wrapSite(tendon, ("site_" + std::to_string(i + 1)).c_str());
    }
  }
}

TaskDefinition Define(const char* name, int num_bodies, int num_actuators) {
  return {
      .name = name,
      .model = "lqr.xml",
      .options = {.time_limit_s = kInfinity},
      .edit = [=](mjSpec& spec) { AddBodies(spec, num_bodies, num_actuators); },
      .make_task = TaskMaker<Lqr>()};
}

}  // namespace

std::vector<TaskDefinition> LqrTasks() {
  return {Define("lqr-lqr_2_1", 2, 1), Define("lqr-lqr_6_2", 6, 2)};
}

}  // namespace replicant::env
