#include "env/tasks/cartpole.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"
#include "env/model_edit.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

enum class Start { kUpright, kHanging };
enum class RewardKind { kDense, kSparse };

// The first pole is body 2: the world is 0 and the cart 1.
constexpr int kFirstPole = 2;

class Cartpole : public Task {
 public:
  Cartpole(Start start, RewardKind reward) : start_(start), reward_(reward) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    slider_ = physics.QposAddress("slider");
    hinge_ = physics.QposAddress("hinge_1");
    if (physics.model().nu == 0) {
      throw InvalidArgument(physics.name() +
                            ": the model has no actuator, want at least one");
    }
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    const std::span<double> qpos = physics.mutable_qpos();
    double* data = qpos.data();
    if (start_ == Start::kHanging) {
      data[slider_] = 0.01 * random.Normal();
      data[hinge_] = std::numbers::pi + 0.01 * random.Normal();
      for (double& q : qpos.subspan(2)) q = 0.1 * random.Normal();
    } else {
      data[slider_] = random.Uniform(-0.1, 0.1);
      for (double& q : qpos.subspan(1)) q = random.Uniform(-0.034, 0.034);
    }
    for (double& v : physics.mutable_qvel()) v = 0.01 * random.Normal();
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Begin("position");
    writer.Append(CartPosition(physics));
    for (int body = kFirstPole; body < physics.model().nbody; ++body) {
      writer.Append(physics.BodyMatrix(body)[kZZ]);
      writer.Append(physics.BodyMatrix(body)[kXZ]);
    }
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    return reward_ == RewardKind::kSparse ? SparseReward(physics)
                                          : DenseReward(physics);
  }

 private:
  double CartPosition(const Physics& physics) const {
    return physics.data().qpos[slider_];
  }

  double SparseReward(const Physics& physics) const {
    if (std::abs(CartPosition(physics)) > 0.25) return 0.0;
    for (int body = kFirstPole; body < physics.model().nbody; ++body) {
      const double cosine = physics.BodyMatrix(body)[kZZ];
      if (Tolerance(cosine, {.lower = 0.995, .upper = 1.0}) == 0.0) return 0.0;
    }
    return 1.0;
  }

  double DenseReward(const Physics& physics) const {
    double upright = 0.0;
    const int num_bodies = static_cast<int>(physics.model().nbody);
    for (int body = kFirstPole; body < num_bodies; ++body) {
      upright += (physics.BodyMatrix(body)[kZZ] + 1.0) / 2.0;
    }
    upright /= num_bodies - kFirstPole;

    const double centered =
        (1.0 + Tolerance(CartPosition(physics), {.margin = 2.0})) / 2.0;
    const double small_control =
        (4.0 + SmallControl(physics.ctrl().first(1))) / 5.0;
    double small_velocity = 1.0;
    for (const double velocity : physics.qvel().subspan(1)) {
      small_velocity =
          std::min(small_velocity, Tolerance(velocity, {.margin = 5.0}));
    }
    return upright * small_control * (1.0 + small_velocity) / 2.0 * centered;
  }

  Start start_;
  RewardKind reward_;
  int slider_ = 0, hinge_ = 0;
};

// Appends poles to the chain until there are `count`, and makes room for them.
void AddPoles(mjSpec& spec, int count) {
  const mjsDefault* settings = FindDefault(spec, "pole");
  mjsBody* parent = &FindBody(spec, "pole_1");
  for (int i = 2; i <= count; ++i) {
    mjsBody* pole = mjs_addBody(parent, settings);
    SetName(pole->element, "pole_" + std::to_string(i));
    pole->pos[2] = 1.0;
    mjsJoint* hinge = mjs_addJoint(pole, settings);
    SetName(hinge->element, "hinge_" + std::to_string(i));
    mjsGeom* geom = mjs_addGeom(pole, settings);
    SetName(geom->element, "pole_" + std::to_string(i));
    parent = pole;
  }

  FindGeom(spec, "floor").pos[2] = 1.0 - count - 0.05;
  const auto move_camera = [&spec](const char* name, double y, double z) {
    mjsCamera* camera = mjs_asCamera(&FindElement(spec, mjOBJ_CAMERA, name));
    camera->pos[0] = 0.0;
    camera->pos[1] = y;
    camera->pos[2] = z;
  };
  move_camera("fixed", -1.0 - 2.0 * count, 1.0);
  move_camera("lookatcart", -2.0 * count, 2.0);
}

TaskDefinition Define(const char* name, int poles, Start start,
                      RewardKind reward) {
  TaskDefinition task{.name = std::string("cartpole-") + name,
                      .model = "cartpole.xml",
                      .options = {.time_limit_s = 10.0},
                      .make_task = TaskMaker<Cartpole>(start, reward)};
  if (poles > 1) {
    task.edit = [poles](mjSpec& spec) { AddPoles(spec, poles); };
  }
  return task;
}

}  // namespace

std::vector<TaskDefinition> CartpoleTasks() {
  using enum Start;
  using enum RewardKind;
  return {Define("balance", 1, kUpright, kDense),
          Define("balance_sparse", 1, kUpright, kSparse),
          Define("swingup", 1, kHanging, kDense),
          Define("swingup_sparse", 1, kHanging, kSparse),
          Define("two_poles", 2, kHanging, kDense),
          Define("three_poles", 3, kHanging, kDense)};
}

}  // namespace replicant::env
