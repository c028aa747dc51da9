#include "env/tasks/point_mass.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

// Two directions with a larger cosine between them are drawn again.
constexpr double kMaxCosine = 0.9;
// The gains of two tendons, each with both joints.
constexpr int kNumGains = 4;

class PointMass : public Task {
 public:
  explicit PointMass(bool has_random_gains)
      : has_random_gains_(has_random_gains) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    mass_ = physics.GeomId("pointmass");
    target_ = physics.GeomId("target");
    if (has_random_gains_ && physics.model().nwrap != kNumGains) {
      throw InvalidArgument(
          fmt::format("{}: the model has {} joints in its tendons, but needs "
                      "two tendons with two joints each",
                      physics.name(), physics.model().nwrap));
    }
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    RandomizeJoints(physics, random);
    if (has_random_gains_) DrawGains(physics, random);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("position", physics.qpos());
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const double target_size = physics.model().geom_size[3 * target_];
    const double distance =
        Norm(Minus(physics.GeomPosition(target_), physics.GeomPosition(mass_)));
    const double near_target =
        Tolerance(distance, {.upper = target_size, .margin = target_size});
    return near_target * (SmallControl(physics.ctrl()) + 4.0) / 5.0;
  }

 private:
  // Each motor pulls a tendon that is a mix of both joints; the mix is drawn.
  static void DrawGains(Physics& physics, RandomStream& random) {
    std::array<double, 2> first;
    std::array<double, 2> second;
    RandomDirection(random, first);
    do {
      RandomDirection(random, second);
    } while (std::abs(first[0] * second[0] + first[1] * second[1]) >
             kMaxCosine);
    double* coefficients = physics.mutable_model().wrap_prm;
    std::copy(first.begin(), first.end(), coefficients);
    std::copy(second.begin(), second.end(), coefficients + 2);
  }

  bool has_random_gains_;
  int mass_ = 0, target_ = 0;
};

TaskDefinition Define(const char* name, bool has_random_gains) {
  return {.name = name,
          .model = "point_mass.xml",
          .options = {.time_limit_s = 20.0},
          .make_task = TaskMaker<PointMass>(has_random_gains)};
}

}  // namespace

std::vector<TaskDefinition> PointMassTasks() {
  return {Define("point_mass-easy", /*has_random_gains=*/false),
          Define("point_mass-hard", /*has_random_gains=*/true)};
}

}  // namespace replicant::env
