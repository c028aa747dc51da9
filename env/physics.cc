#include "env/physics.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/nearest.h"

namespace replicant::env {
namespace {

std::string NearestInModel(const mjModel& model, mjtObj type, int count,
                           const std::string& name) {
  std::vector<std::string> names;
  for (int id = 0; id < count; ++id) {
    const char* text = mj_id2name(&model, type, id);
    if (text != nullptr) names.emplace_back(text);
  }
  return NearestName(name, names);
}

int CountOf(const mjModel& model, mjtObj type) {
  switch (type) {
    case mjOBJ_BODY:
      return static_cast<int>(model.nbody);
    case mjOBJ_GEOM:
      return static_cast<int>(model.ngeom);
    case mjOBJ_SITE:
      return static_cast<int>(model.nsite);
    case mjOBJ_JOINT:
      return static_cast<int>(model.njnt);
    case mjOBJ_SENSOR:
      return static_cast<int>(model.nsensor);
    case mjOBJ_LIGHT:
      return static_cast<int>(model.nlight);
    case mjOBJ_CAMERA:
      return static_cast<int>(model.ncam);
    case mjOBJ_TENDON:
      return static_cast<int>(model.ntendon);
    case mjOBJ_KEY:
      return static_cast<int>(model.nkey);
    default:
      return 0;
  }
}

// Gives back the pages of the solver's statistics, which mj_resetData() filled
// with zeros: 160 kB of each mjData, of which a step writes some hundred bytes
// for each group of constraints. A page reads as zeros until it is written.
void ReleaseStatistics(mjData& data) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* begin = reinterpret_cast<std::byte*>(data.solver);
  const size_t head = (page - reinterpret_cast<uintptr_t>(begin) % page);
  const size_t size = (sizeof(data.solver) - head) / page * page;
  // memory that cannot be given back stays
  (void)madvise(begin + head, size, MADV_DONTNEED);
}

// Gives a model its disabled parts back at the end of a scope, which may be an
// error of MuJoCo's.
class DisabledParts {
 public:
  explicit DisabledParts(mjModel& model)
      : flags_(model.opt.disableflags), before_(flags_) {}
  ~DisabledParts() { flags_ = before_; }
  DisabledParts(const DisabledParts&) = delete;
  DisabledParts& operator=(const DisabledParts&) = delete;

  // Disables these parts, and of the others those of the model only.
  void Add(int parts) { flags_ = before_ | parts; }

 private:
  int& flags_;
  const int before_;
};

}  // namespace

Physics::Physics(MjModelPtr model, std::string name)
    : model_(std::move(model)), name_(std::move(name)) {
  REPLICANT_CHECK(model_ != nullptr, "no model");
  data_ = MakeData(*model_);
  Reset();
}

void Physics::Reset() {
  mj_resetData(model_.get(), data_.get());
  ReleaseStatistics(*data_);
  (void)ForwardWithoutActuation();
}

PhysicsStatus Physics::ForwardWithoutActuation() {
  const WarningCounts before = CountWarnings();
  DisabledParts disabled(*model_);
  disabled.Add(mjDSBL_ACTUATION);
  mj_forward(model_.get(), data_.get());
  return StatusSince(before);
}

PhysicsStatus Physics::Step(int count) {
  REPLICANT_CHECK_GE(count, 1);
  const WarningCounts before = CountWarnings();
  if (model_->opt.integrator == mjINT_RK4) {
    for (int i = 0; i < count; ++i) mj_step(model_.get(), data_.get());
    mj_step1(model_.get(), data_.get());
    return StatusSince(before);
  }
  // the previous call has already done the first half of the first step; only
  // the sensors of the last step are read, unless the model keeps a history of
  // readings
  DisabledParts disabled(*model_);
  const int unread = model_->nhistory == 0 ? mjDSBL_SENSOR : 0;
  for (int i = 1; i <= count; ++i) {
    disabled.Add(i < count ? unread : 0);
    mj_step2(model_.get(), data_.get());
    mj_step1(model_.get(), data_.get());
  }
  return StatusSince(before);
}

Physics::WarningCounts Physics::CountWarnings() const {
  WarningCounts counts;
  for (int i = 0; i < mjNWARNING; ++i) {
    counts[static_cast<size_t>(i)] = data_->warning[i].number;
  }
  return counts;
}

PhysicsStatus Physics::StatusSince(const WarningCounts& before) const {
  for (int i = 0; i < mjNWARNING; ++i) {
    // MuJoCo's own reset of a bad state restarts the count of warnings at zero
    if (data_->warning[i].number > before[static_cast<size_t>(i)]) {
      return PhysicsStatus::kDiverged;
    }
  }
  return PhysicsStatus::kOk;
}

std::string Physics::WarningText() const {
  std::string text;
  for (int i = 0; i < mjNWARNING; ++i) {
    const mjWarningStat& warning = data_->warning[i];
    if (warning.number == 0) continue;
    if (!text.empty()) text += "; ";
    text += mju_warningText(i, static_cast<size_t>(warning.lastinfo));
  }
  return text;
}

int Physics::Id(mjtObj type, const std::string& name) const {
  const int id = mj_name2id(model_.get(), type, name.c_str());
  if (id < 0) {
    const std::string nearest =
        NearestInModel(*model_, type, CountOf(*model_, type), name);
    throw InvalidArgument(fmt::format(
        "{}: no {} named '{}' in the model{}", name_, mju_type2Str(type), name,
        nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
  return id;
}

void Physics::RequireSize(const char* type, const std::string& name, int size,
                          int wanted) const {
  if (size >= wanted) return;
  throw InvalidArgument(
      fmt::format("{}: {} '{}' has the size {}, want at least {}", name_, type,
                  name, size, wanted));
}

int Physics::QposAddress(const std::string& joint, int size) const {
  const int id = JointId(joint);
  const int type = model_->jnt_type[id];
  RequireSize("joint", joint,
              type == mjJNT_FREE   ? 7
              : type == mjJNT_BALL ? 4
                                   : 1,
              size);
  return model_->jnt_qposadr[id];
}

int Physics::DofAddress(const std::string& joint) const {
  return model_->jnt_dofadr[JointId(joint)];
}

int Physics::SensorAddress(const std::string& sensor, int size) const {
  const int id = Id(mjOBJ_SENSOR, sensor);
  RequireSize("sensor", sensor, model_->sensor_dim[id], size);
  return model_->sensor_adr[id];
}

Vec3 Minus(Span3 a, Span3 b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }

double Norm(std::span<const double> v) {
  double sum = 0.0;
  for (const double value : v) sum += value * value;
  return std::sqrt(sum);
}

Vec3 ToFrame(Span3 v, Span9 frame) {
  Vec3 result;
  for (size_t j = 0; j < 3; ++j) {
    result[j] = v[0] * frame[j] + v[1] * frame[3 + j] + v[2] * frame[6 + j];
  }
  return result;
}

}  // namespace replicant::env
