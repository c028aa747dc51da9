#include "env/specs.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/nearest.h"

namespace replicant::env {
namespace {

// of an unbounded actuator
constexpr double kUnbounded = 1e10;

int64_t TotalSize(const std::vector<ArraySpec>& arrays, DType dtype) {
  int64_t size = 0;
  for (const ArraySpec& array : arrays) {
    if (array.dtype == dtype) size += array.shape.num_elements();
  }
  return size;
}

}  // namespace

int64_t ObservationSpec::state_size() const {
  return TotalSize(arrays, DType::kF64);
}

int64_t ObservationSpec::pixels_size() const {
  return TotalSize(arrays, DType::kU8);
}

const ArraySpec& ObservationSpec::Find(const std::string& name) const {
  std::vector<std::string> names;
  for (const ArraySpec& array : arrays) {
    if (array.name == name) return array;
    names.push_back(array.name);
  }
  const std::string nearest = NearestName(name, names);
  throw InvalidArgument(fmt::format(
      "observation: no array named '{}'{}", name,
      nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

int64_t ObservationSpec::Offset(const std::string& name) const {
  const ArraySpec& wanted = Find(name);
  int64_t offset = 0;
  for (const ArraySpec& array : arrays) {
    if (&array == &wanted) break;
    if (array.dtype == wanted.dtype) offset += array.shape.num_elements();
  }
  return offset;
}

bool ActionSpec::HasBounds(size_t i) const {
  return minimum[i] > -kUnbounded && maximum[i] < kUnbounded;
}

void DrawAction(const ActionSpec& spec, RandomStream& random,
                std::span<double> action) {
  for (size_t i = 0; i < action.size(); ++i) {
    action[i] = spec.HasBounds(i)
                    ? random.Uniform(spec.minimum[i], spec.maximum[i])
                    : random.Uniform(-1.0, 1.0);
  }
}

void CheckAction(std::span<const double> action, const ActionSpec& spec,
                 const std::string& where) {
  if (action.size() != spec.minimum.size()) {
    throw InvalidArgument(fmt::format("{}: action has {} elements, expected {}",
                                      where, action.size(), spec.size()));
  }
  for (size_t i = 0; i < action.size(); ++i) {
    if (!std::isfinite(action[i])) {
      throw InvalidArgument(fmt::format(
          "{}: action[{}] is {}, but must be finite", where, i, action[i]));
    }
  }
}

void CheckBuffer(const ObservationBuffer& out, const ObservationSpec& spec,
                 const std::string& where) {
  const auto state_size = static_cast<size_t>(spec.state_size());
  if (!out.state.empty() && out.state.size() != state_size) {
    throw InvalidArgument(
        fmt::format("{}: state buffer has {} elements, expected {}", where,
                    out.state.size(), state_size));
  }
  const auto pixels_size = static_cast<size_t>(spec.pixels_size());
  if (!out.pixels.empty() && out.pixels.size() != pixels_size) {
    throw InvalidArgument(
        fmt::format("{}: pixels buffer has {} elements, expected {}{}", where,
                    out.pixels.size(), pixels_size,
                    pixels_size == 0 ? "; hint: this environment does not "
                                       "render, wrap it in one that does"
                                     : ""));
  }
  if (!out.frame.empty() &&
      out.frame.size() != static_cast<size_t>(spec.frame_size)) {
    throw InvalidArgument(
        fmt::format("{}: frame buffer has {} elements, expected {}", where,
                    out.frame.size(), spec.frame_size));
  }
}

}  // namespace replicant::env
