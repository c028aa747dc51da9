#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "env/mujoco.h"

namespace replicant::env {

// Vectors and matrices as MuJoCo stores them: row-major, borrowed from mjData.
using Vec3 = std::array<double, 3>;
using Span3 = std::span<const double, 3>;
using Span9 = std::span<const double, 9>;

// Indices into a body's 3x3 rotation matrix by dm_control's names, row then
// column.
enum MatrixIndex { kXX, kXY, kXZ, kYX, kYY, kYZ, kZX, kZY, kZZ };

// Outcome of advancing the simulation.
enum class [[nodiscard]] PhysicsStatus{
    kOk,
    // MuJoCo gave a warning (a bad or huge number in the state, a full contact
    // buffer). The state is invalid and may have been reset.
    kDiverged,
};

// One MuJoCo model with its simulation state, stepped in the order of
// dm_control. After every call, quantities derived from positions and
// velocities (body frames, velocity sensors, contacts) match the current state;
// sensors of the acceleration stage (touch, force, accelerometer) match the
// last step.
//
// The object owns its model because tasks change it at reset (target positions,
// terrain).
//
// Thread-safety: one thread at a time; different objects are independent.
class Physics {
 public:
  // `name` is for messages. Starts in the state after Reset().
  explicit Physics(MjModelPtr model, std::string name = "model");

  const mjModel& model() const { return *model_; }
  mjModel& mutable_model() { return *model_; }
  const mjData& data() const { return *data_; }
  mjData& mutable_data() { return *data_; }
  const std::string& name() const { return name_; }

  // The model's default state, made consistent by ForwardWithoutActuation().
  // A MuJoCo warning is not an error here, since the state is about to change.
  void Reset();

  // Computes all derived quantities of the current state, with actuators off
  // because no action was given yet.
  PhysicsStatus ForwardWithoutActuation();

  // Advances by `count` >= 1 physics timesteps with the current controls. Needs
  // the derived quantities of ForwardWithoutActuation() or an earlier Step().
  // If the state was changed since, the first step still uses the derived
  // quantities of the old state, as dm_control does (see the cheetah).
  PhysicsStatus Step(int count);

  // MuJoCo's warnings since the last Reset(), as text; "" if none.
  std::string WarningText() const;

  // Ids of objects by name. Throw InvalidArgument with the nearest name in the
  // model if there is none.
  int Id(mjtObj type, const std::string& name) const;
  int BodyId(const std::string& name) const { return Id(mjOBJ_BODY, name); }
  int GeomId(const std::string& name) const { return Id(mjOBJ_GEOM, name); }
  int SiteId(const std::string& name) const { return Id(mjOBJ_SITE, name); }
  int JointId(const std::string& name) const { return Id(mjOBJ_JOINT, name); }
  // First index of a joint in qpos, and in qvel. Throws InvalidArgument, too,
  // for a joint with fewer than `size` numbers of qpos.
  int QposAddress(const std::string& joint, int size = 1) const;
  int DofAddress(const std::string& joint) const;
  // First index of a sensor's reading in sensordata. Throws InvalidArgument,
  // too, for a sensor with fewer than `size` numbers.
  int SensorAddress(const std::string& sensor, int size = 1) const;

  double timestep_s() const { return model_->opt.timestep; }

  std::span<const double> qpos() const {
    return {data_->qpos, Size(model_->nq)};
  }
  // From element `first` on; empty if there are no more.
  std::span<const double> QposFrom(int64_t first) const {
    return qpos().subspan(Size(std::min<int64_t>(first, model_->nq)));
  }
  std::span<double> mutable_qpos() { return {data_->qpos, Size(model_->nq)}; }
  std::span<const double> qvel() const {
    return {data_->qvel, Size(model_->nv)};
  }
  std::span<double> mutable_qvel() { return {data_->qvel, Size(model_->nv)}; }
  std::span<const double> ctrl() const {
    return {data_->ctrl, Size(model_->nu)};
  }
  std::span<double> mutable_ctrl() { return {data_->ctrl, Size(model_->nu)}; }
  std::span<const double> act() const { return {data_->act, Size(model_->na)}; }

  // World position and rotation of a body, site or geom.
  Span3 BodyPosition(int id) const { return Span3(data_->xpos + 3 * id, 3); }
  Span9 BodyMatrix(int id) const { return Span9(data_->xmat + 9 * id, 9); }
  Span3 SitePosition(int id) const {
    return Span3(data_->site_xpos + 3 * id, 3);
  }
  Span9 SiteMatrix(int id) const { return Span9(data_->site_xmat + 9 * id, 9); }
  Span3 GeomPosition(int id) const {
    return Span3(data_->geom_xpos + 3 * id, 3);
  }
  Span9 GeomMatrix(int id) const { return Span9(data_->geom_xmat + 9 * id, 9); }
  // `size` readings from `address` on.
  std::span<const double> Sensor(int address, int size) const {
    return {data_->sensordata + address, Size(size)};
  }

 private:
  static size_t Size(int64_t n) { return static_cast<size_t>(n); }
  using WarningCounts = std::array<int, mjNWARNING>;
  WarningCounts CountWarnings() const;
  PhysicsStatus StatusSince(const WarningCounts& before) const;
  // Throws InvalidArgument unless an object has at least `wanted` numbers.
  void RequireSize(const char* type, const std::string& name, int size,
                   int wanted) const;

  MjModelPtr model_;
  MjDataPtr data_;
  std::string name_;
};

// Vectors in world coordinates: difference, length, and `v` in the coordinates
// of a frame with rotation matrix `frame` (its transpose applied to v).
Vec3 Minus(Span3 a, Span3 b);
double Norm(std::span<const double> v);
Vec3 ToFrame(Span3 v, Span9 frame);

}  // namespace replicant::env
