#include "env/model_fields.h"

#include <fmt/format.h>
#include <mujoco/mjxmacro.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "base/nearest.h"

namespace replicant::env {
namespace {

// Calls visit(name, pointer, rows, columns) for every array of the model.
// MuJoCo lists them in a macro that needs some sizes as local names.
template <typename Visitor>
void ForEachArray(const mjModel& model, const Visitor& visit) {
  [[maybe_unused]] const mjtSize nuser_body = model.nuser_body;
  [[maybe_unused]] const mjtSize nuser_jnt = model.nuser_jnt;
  [[maybe_unused]] const mjtSize nuser_geom = model.nuser_geom;
  [[maybe_unused]] const mjtSize nuser_site = model.nuser_site;
  [[maybe_unused]] const mjtSize nuser_cam = model.nuser_cam;
  [[maybe_unused]] const mjtSize nuser_tendon = model.nuser_tendon;
  [[maybe_unused]] const mjtSize nuser_actuator = model.nuser_actuator;
  [[maybe_unused]] const mjtSize nuser_sensor = model.nuser_sensor;
  [[maybe_unused]] const mjtSize nq = model.nq;
  [[maybe_unused]] const mjtSize nv = model.nv;
  [[maybe_unused]] const mjtSize na = model.na;
  [[maybe_unused]] const mjtSize nu = model.nu;
  [[maybe_unused]] const mjtSize nmocap = model.nmocap;
#if mjVERSION_HEADER >= 4000000
  [[maybe_unused]] const mjtSize nplastic = model.nplastic;
#endif
#define X(type, name, rows, columns) \
  visit(#name, model.name, int64_t{model.rows}, int64_t{columns});
#undef MJ_M
#define MJ_M(n) n
  MJMODEL_POINTERS
#undef X
}

template <typename T>
constexpr bool kIsReal = std::is_same_v<T, double> || std::is_same_v<T, float>;

template <typename T>
void CheckFinite(std::span<const T> values, const std::string& name) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      throw InvalidArgument(
          fmt::format("model field '{}': element {} is {}, but must be finite",
                      name, i, values[i]));
    }
  }
}

}  // namespace

MutableTensorView ModelField(mjModel& model, const std::string& name) {
  std::optional<MutableTensorView> found;
  ForEachArray(model, [&](const char* field, auto* pointer, int64_t rows,
                          int64_t columns) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(pointer)>>;
    if constexpr (kIsReal<T>) {
      if (name != field) return;
      const Shape shape = columns == 1 ? Shape({rows}) : Shape({rows, columns});
      found.emplace(kDTypeOf<T>, shape, pointer);
    }
  });
  if (!found) {
    const std::string nearest = NearestName(name, ModelFieldNames(model));
    throw InvalidArgument(fmt::format(
        "model field '{}': mjModel has no floating-point array of that name{}",
        name,
        nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
  return *found;
}

std::vector<std::string> ModelFieldNames(const mjModel& model) {
  std::vector<std::string> names;
  ForEachArray(model, [&](const char* field, auto* pointer, int64_t /*rows*/,
                          int64_t /*columns*/) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(pointer)>>;
    if constexpr (kIsReal<T>) names.emplace_back(field);
  });
  return names;
}

void SetModelField(mjModel& model, const std::string& name,
                   const TensorView& value) {
  const MutableTensorView field = ModelField(model, name);
  if (value.dtype() != field.dtype() || value.shape() != field.shape()) {
    throw InvalidArgument(
        fmt::format("model field '{}': got {}{}, expected {}{}", name,
                    DTypeName(value.dtype()), value.shape().ToString(),
                    DTypeName(field.dtype()), field.shape().ToString()));
  }
  if (field.dtype() == DType::kF64) {
    CheckFinite(value.Span<double>(), name);
  } else {
    CheckFinite(value.Span<float>(), name);
  }
  if (field.size_bytes() > 0) {
    std::memcpy(field.data(), value.data(), field.size_bytes());
  }
}

std::string FirstDifference(const mjModel& a, const mjModel& b) {
  const auto is_of_paths = [](std::string_view name) {
    return name == "npaths" || name == "nbuffer" || name == "paths" ||
           name.ends_with("_pathadr");
  };
#define X(name) \
  if (a.name != b.name && !is_of_paths(#name)) return #name;
  MJMODEL_SIZES
#undef X
  if (std::memcmp(&a.opt, &b.opt, sizeof(a.opt)) != 0) return "opt";
  if (std::memcmp(&a.vis, &b.vis, sizeof(a.vis)) != 0) return "vis";
  if (std::memcmp(&a.stat, &b.stat, sizeof(a.stat)) != 0) return "stat";

  // arrays of equal sizes, in one order
  std::vector<const void*> arrays;
  ForEachArray(a, [&arrays](const char*, const auto* array, int64_t, int64_t) {
    arrays.push_back(array);
  });
  std::string first;
  size_t i = 0;
  ForEachArray(b, [&](const char* name, const auto* array, int64_t rows,
                      int64_t columns) {
    const void* const other = arrays[i++];
    if (!first.empty() || is_of_paths(name)) return;
    const auto bytes = static_cast<size_t>(rows * columns) * sizeof(*array);
    if (bytes > 0 && std::memcmp(other, array, bytes) != 0) first = name;
  });
  return first;
}

}  // namespace replicant::env
