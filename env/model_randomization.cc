#include "env/model_randomization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "env/model_bounds.h"
#include "env/model_fields.h"
#include "env/name_pattern.h"

namespace replicant::env {
namespace {

// --- fields by name ---

// Numbers of mjModel::opt that can be randomized.
struct OptionField {
  const char* name;
  int64_t size;
  double* (*of)(mjModel&);
};
constexpr std::array<OptionField, 4> kOptionFields = {{
    {"gravity", 3, [](mjModel& m) -> double* { return m.opt.gravity; }},
    {"wind", 3, [](mjModel& m) -> double* { return m.opt.wind; }},
    {"density", 1, [](mjModel& m) { return &m.opt.density; }},
    {"viscosity", 1, [](mjModel& m) { return &m.opt.viscosity; }},
}};

MutableTensorView FieldOf(mjModel& model, const std::string& name) {
  for (const OptionField& option : kOptionFields) {
    if (name == option.name) {
      return {DType::kF64, Shape({1, option.size}), option.of(model)};
    }
  }
  return ModelField(model, name);
}

// Calls visit(span) with the field's numbers, of either type.
template <typename Visitor>
void WithNumbers(mjModel& model, const std::string& name,
                 const Visitor& visit) {
  const MutableTensorView field = FieldOf(model, name);
  if (field.dtype() == DType::kF64) {
    visit(field.Span<double>());
  } else {
    visit(field.Span<float>());
  }
}

// The objects that the rows of a field belong to, by the field's prefix.
struct ObjectKind {
  std::string_view prefix;
  mjtObj type;
};
constexpr std::array<ObjectKind, 13> kObjectKinds = {{
    {"body_", mjOBJ_BODY},
    {"jnt_", mjOBJ_JOINT},
    {"dof_", mjOBJ_JOINT},
    {"geom_", mjOBJ_GEOM},
    {"site_", mjOBJ_SITE},
    {"cam_", mjOBJ_CAMERA},
    {"light_", mjOBJ_LIGHT},
    {"mat_", mjOBJ_MATERIAL},
    {"pair_", mjOBJ_PAIR},
    {"eq_", mjOBJ_EQUALITY},
    {"tendon_", mjOBJ_TENDON},
    {"actuator_", mjOBJ_ACTUATOR},
    {"sensor_", mjOBJ_SENSOR},
}};

std::optional<ObjectKind> KindOf(std::string_view field) {
  for (const ObjectKind& kind : kObjectKinds) {
    if (field.starts_with(kind.prefix)) return kind;
  }
  return std::nullopt;
}

// Name of the object of a row; "" if it has none.
std::string NameOfRow(const mjModel& model, const ObjectKind& kind,
                      int64_t row) {
  int id = static_cast<int>(row);
  if (kind.prefix == "dof_") id = model.dof_jntid[id];
  const char* name = mj_id2name(&model, kind.type, id);
  return name == nullptr ? "" : name;
}

// Rows of `field` whose objects match `pattern`.
std::vector<int64_t> RowsOf(const mjModel& model, const std::string& field,
                            int64_t num_rows, const std::string& pattern,
                            const std::string& where) {
  std::vector<int64_t> rows;
  if (pattern == "*") {
    rows.resize(static_cast<size_t>(num_rows));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    return rows;
  }
  const std::optional<ObjectKind> kind = KindOf(field);
  if (!kind) {
    throw InvalidArgument(
        fmt::format("{}.names: '{}': rows of {} have no names; allowed: '*'",
                    where, pattern, field));
  }
  std::vector<std::string> names;
  for (int64_t row = 0; row < num_rows; ++row) {
    names.push_back(NameOfRow(model, *kind, row));
    if (MatchesPattern(pattern, names.back().c_str())) rows.push_back(row);
  }
  if (rows.empty()) {
    std::erase(names, "");
    throw InvalidArgument(fmt::format(
        "{}.names: no {} of the model matches '{}'; the names are {}", where,
        mju_type2Str(kind->type), pattern,
        names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return rows;
}

// --- what follows from a field ---

// Whether MuJoCo's constants of the default pose depend on the field.
bool IsAppearance(std::string_view field) {
  return field.ends_with("_rgba") || field.starts_with("mat_") ||
         field == "light_ambient" || field == "light_diffuse" ||
         field == "light_specular" || field == "cam_fovy";
}

bool IsOfAsset(std::string_view field) {
  return field.starts_with("hfield_") || field.starts_with("mesh_") ||
         field.starts_with("skin_");
}

// Whether bounding volumes depend on the field.
bool IsOfBounds(std::string_view field) {
  constexpr std::array<std::string_view, 7> kFields = {
      "geom_size",  "geom_pos",  "geom_quat",  "body_ipos",
      "body_iquat", "mesh_vert", "hfield_size"};
  return std::find(kFields.begin(), kFields.end(), field) != kFields.end();
}

// Whether a negative number has no meaning in the field.
bool IsNonNegative(std::string_view field) {
  constexpr std::array<std::string_view, 12> kFields = {
      "body_mass",      "body_inertia",     "geom_size",     "geom_friction",
      "dof_armature",   "dof_damping",      "jnt_stiffness", "dof_frictionloss",
      "tendon_damping", "tendon_stiffness", "density",       "viscosity"};
  return std::find(kFields.begin(), kFields.end(), field) != kFields.end();
}

double Sample(const FieldRandomization& options, RandomStream& random) {
  const double a = options.parameters[0];
  const double b = options.parameters[1];
  switch (options.distribution) {
    case DistributionKind::kUniform:
      return random.Uniform(a, b);
    case DistributionKind::kLogUniform:
      return std::exp(random.Uniform(std::log(a), std::log(b)));
    case DistributionKind::kNormal:
      return a + b * random.Normal();
  }
  return a;
}

double Changed(RandomizationKind kind, double x, double z, double ramp) {
  switch (kind) {
    case RandomizationKind::kScale:
      return x * (1.0 + ramp * (z - 1.0));
    case RandomizationKind::kAdd:
      return x + ramp * z;
    case RandomizationKind::kSet:
      return x + ramp * (z - x);
  }
  return x;
}

// Recomputes what MuJoCo derives from the default pose.
void SetConstants(Physics& physics) {
  mjModel& model = physics.mutable_model();
  // a model's <statistic> may be its author's
  const mjStatistic statistic = model.stat;
  mj_setConst(&model, &physics.mutable_data());
  model.stat = statistic;
}

bool IsPrimitive(int type) {
  return type == mjGEOM_SPHERE || type == mjGEOM_CAPSULE ||
         type == mjGEOM_CYLINDER || type == mjGEOM_ELLIPSOID ||
         type == mjGEOM_BOX;
}

}  // namespace

FieldRandomization FieldRandomization::Read(config::Reader& reader) {
  FieldRandomization c;
  reader.Field("fields", &c.fields, {0, 16},
               "arrays of mjModel that get the same draws, for example "
               "[body_mass, body_inertia]; also gravity, wind, density and "
               "viscosity");
  reader.Field(
      "names", &c.names,
      "names of the objects (bodies, joints, geoms, ...), as a pattern "
      "of the shell: '*', 'left_*'");
  reader.Field("operation", &c.kind,
               {{"scale", RandomizationKind::kScale},
                {"add", RandomizationKind::kAdd},
                {"set", RandomizationKind::kSet}},
               "what the drawn number does to the model's number");
  reader.Field("distribution", &c.distribution,
               {{"uniform", DistributionKind::kUniform},
                {"log_uniform", DistributionKind::kLogUniform},
                {"normal", DistributionKind::kNormal}},
               "distribution of the drawn number");
  reader.Field(
      "parameters", &c.parameters, {-1e10, 1e10}, {2, 2},
      "of the distribution: [low, high], or [mean, standard deviation] "
      "for normal");
  reader.Field("draw", &c.draw,
               {{"one", DrawKind::kOne},
                {"row", DrawKind::kRow},
                {"element", DrawKind::kElement}},
               "one number for all objects, for each object, or for each of an "
               "object's numbers");
  reader.Field("columns", &c.columns, {0, 1000}, {0, 1000},
               "indices of an object's numbers that change; []: all");
  reader.Field("limits", &c.limits, {-1e10, 1e10}, {0, 2},
               "[low, high] that clamp the result; []: none");
  reader.Field("ramp_episodes", &c.ramp_episodes, {0, 1'000'000'000},
               "episodes of an environment over which the change grows from "
               "none to full size; 0: full size at once");
  if (c.fields.empty()) {
    reader.Error("fields", "names no field; want at least one");
  }
  if (c.parameters.size() == 2) {
    const double low = c.parameters[0];
    const double high = c.parameters[1];
    if (c.distribution == DistributionKind::kNormal ? high < 0.0 : low > high) {
      reader.Error("parameters",
                   c.distribution == DistributionKind::kNormal
                       ? fmt::format("standard deviation {} < 0", high)
                       : fmt::format("low {} > high {}", low, high));
    }
    if (c.distribution == DistributionKind::kLogUniform && !(low > 0.0)) {
      reader.Error("parameters",
                   fmt::format("log_uniform needs low > 0, got {}", low));
    }
  }
  if (c.limits.size() == 1 ||
      (c.limits.size() == 2 && c.limits[0] > c.limits[1])) {
    reader.Error("limits", fmt::format("[{}]; allowed: [] or [low, high]",
                                       fmt::join(c.limits, ", ")));
  }
  return c;
}

ModelRandomizer::ModelRandomizer(const std::vector<FieldRandomization>& fields,
                                 Physics& physics) {
  for (size_t i = 0; i < fields.size(); ++i) {
    Entry entry{.options = fields[i], .targets = {}};
    for (const std::string& field : fields[i].fields) {
      entry.targets.push_back(MakeTarget(fields[i], i, field, physics));
      const Target& target = entry.targets.back();
      if (target.rows.size() != entry.targets[0].rows.size() ||
          (fields[i].draw == DrawKind::kElement &&
           target.columns.size() != entry.targets[0].columns.size())) {
        throw InvalidArgument(fmt::format(
            "task.randomization.fields[{}]: {} and {} get the same draws, "
            "but differ in size; give them elements of their own",
            i, entry.targets[0].field, field));
      }
      changes_assets_ |= IsOfAsset(field);
      changes_constants_ |= !IsAppearance(field);
      changes_bounds_ |= IsOfBounds(field);
      changes_vertices_ |= field == "mesh_vert";
    }
    entries_.push_back(std::move(entry));
  }
}

ModelRandomizer::Target ModelRandomizer::MakeTarget(
    const FieldRandomization& options, size_t index, const std::string& field,
    Physics& physics) {
  mjModel& model = physics.mutable_model();
  const std::string where = fmt::format("task.randomization.fields[{}]", index);
  std::vector<std::string> names = ModelFieldNames(model);
  for (const OptionField& option : kOptionFields) names.push_back(option.name);
  if (std::find(names.begin(), names.end(), field) == names.end()) {
    const std::string nearest = NearestName(field, names);
    throw InvalidArgument(fmt::format(
        "{}.fields: mjModel has no floating-point array '{}'{}", where, field,
        nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
  const Shape shape = FieldOf(model, field).shape();
  Target target{.field = field, .width = shape.rank() == 2 ? shape[1] : 1};
  target.rows = RowsOf(model, field, shape[0], options.names, where);
  if (target.rows.empty()) {
    throw InvalidArgument(
        fmt::format("{}.fields: {} is empty in this model", where, field));
  }
  target.columns = options.columns;
  if (target.columns.empty()) {
    target.columns.resize(static_cast<size_t>(target.width));
    std::iota(target.columns.begin(), target.columns.end(), int64_t{0});
  }
  for (const int64_t column : target.columns) {
    if (column >= target.width) {
      throw InvalidArgument(
          fmt::format("{}.columns: {} of {}; allowed: 0 to {}", where, column,
                      field, target.width - 1));
    }
  }
  if (field == "geom_size") {
    for (const int64_t geom : target.rows) {
      if (!IsPrimitive(model.geom_type[geom])) {
        throw InvalidArgument(fmt::format(
            "{}.names: geom {} is a plane, mesh or height field, whose size is "
            "no number of geom_size; allowed: spheres, capsules, cylinders, "
            "ellipsoids and boxes",
            where, geom));
      }
    }
  }
  WithNumbers(model, field, [&target](auto numbers) {
    for (const int64_t row : target.rows) {
      for (const int64_t column : target.columns) {
        target.defaults.push_back(static_cast<double>(
            numbers[static_cast<size_t>(row * target.width + column)]));
      }
    }
  });
  return target;
}

void ModelRandomizer::Draw(Physics& physics, const RandomStream& random,
                           int64_t episode) const {
  // all first, so that the entries of one element build on each other
  for (const Entry& entry : entries_) {
    for (const Target& target : entry.targets) Reset(target, physics);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t ramp_episodes = entries_[i].options.ramp_episodes;
    const double ramp =
        episode >= ramp_episodes
            ? 1.0
            : static_cast<double>(episode) / static_cast<double>(ramp_episodes);
    Change(entries_[i], random.Substream(fmt::format("field-{}", i)), ramp,
           physics);
  }
  if (changes_bounds_) FitBounds(physics.mutable_model(), changes_vertices_);
  if (changes_constants_) SetConstants(physics);
}

void ModelRandomizer::Reset(const Target& target, Physics& physics) {
  WithNumbers(physics.mutable_model(), target.field, [&target](auto numbers) {
    using T = typename decltype(numbers)::value_type;
    size_t i = 0;
    for (const int64_t row : target.rows) {
      for (const int64_t column : target.columns) {
        numbers[static_cast<size_t>(row * target.width + column)] =
            static_cast<T>(target.defaults[i++]);
      }
    }
  });
}

void ModelRandomizer::Change(const Entry& entry, RandomStream random,
                             double ramp, Physics& physics) {
  const FieldRandomization& options = entry.options;
  const size_t num_rows = entry.targets[0].rows.size();
  const size_t num_columns = options.draw == DrawKind::kElement
                                 ? entry.targets[0].columns.size()
                                 : size_t{1};
  // the draws first, so that all fields of the entry get the same
  std::vector<double> draws(
      options.draw == DrawKind::kOne ? size_t{1} : num_rows * num_columns);
  for (double& z : draws) z = Sample(options, random);

  for (const Target& target : entry.targets) {
    WithNumbers(physics.mutable_model(), target.field, [&](auto numbers) {
      using T = typename decltype(numbers)::value_type;
      for (size_t r = 0; r < target.rows.size(); ++r) {
        for (size_t c = 0; c < target.columns.size(); ++c) {
          const size_t draw =
              options.draw == DrawKind::kOne
                  ? 0
                  : r * num_columns + (num_columns == 1 ? 0 : c);
          T& number = numbers[static_cast<size_t>(
              target.rows[r] * target.width + target.columns[c])];
          double x = Changed(options.kind, static_cast<double>(number),
                             draws[draw], ramp);
          if (!options.limits.empty()) {
            x = std::clamp(x, options.limits[0], options.limits[1]);
          }
          if (x < 0.0 && IsNonNegative(target.field)) {
            throw InvalidArgument(fmt::format(
                "{}: task.randomization: drew {} for row {} of {}; want >= 0; "
                "hint: set limits",
                physics.name(), x, target.rows[r], target.field));
          }
          number = static_cast<T>(x);
        }
      }
    });
  }
}

}  // namespace replicant::env
