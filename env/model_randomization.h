#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "base/rng.h"
#include "env/physics.h"

namespace replicant::env {

// A distribution of one number, by its two parameters.
enum class DistributionKind {
  kUniform,     // low, high
  kLogUniform,  // low, high, both > 0: exp(uniform(log(low), log(high)))
  kNormal,      // mean, standard deviation
};

// How a drawn number changes a field's default.
enum class RandomizationKind { kScale, kAdd, kSet };

// The elements of a row that get the same draw.
enum class DrawKind {
  kOne,      // one draw for all rows
  kRow,      // one for each object
  kElement,  // one for each number
};

// An element of `task.randomization.fields`: numbers of the model that are
// drawn anew for each episode.
struct FieldRandomization {
  // Arrays of mjModel ("body_mass", "geom_rgba") that get the same draws, or
  // "gravity", "wind", "density", "viscosity" of its options.
  std::vector<std::string> fields;
  // Names of the objects, as a pattern of the shell; objects without a name
  // match "*" only.
  std::string names = "*";
  RandomizationKind kind = RandomizationKind::kScale;
  DistributionKind distribution = DistributionKind::kUniform;
  // The distribution's parameters.
  std::vector<double> parameters = {1.0, 1.0};
  DrawKind draw = DrawKind::kRow;
  // Columns of the field that change; empty: all.
  std::vector<int64_t> columns;
  // Results are clamped to [limits[0], limits[1]]; empty: no limits.
  std::vector<double> limits;
  // Episodes of an environment over which the change grows from none to its
  // full size; 0: full from the start.
  int64_t ramp_episodes = 0;

  static FieldRandomization Read(config::Reader& reader);
};

// Draws a model's fields at the start of an episode.
//
// For each element of a field, with draw z in episode k, x being its default or
// what an earlier entry of the list has made of it:
//
//   scale  x * (1 + a * (z - 1))      a = min(1, k / ramp_episodes)
//   add    x + a * z
//   set    x + a * (z - x)
//
// A draw depends on the stream and the field's place in the list only, not on
// earlier episodes. MuJoCo's constants that follow from the model are computed
// again: inertial quantities of the default pose by mj_setConst (statistics of
// the model stay, since cameras depend on them), and bounding volumes. What the
// compiler derives from a mesh's vertices otherwise stays (FitBounds()).
// Masses, inertias, sizes and damping must not become negative; Draw() throws
// InvalidArgument if they do.
//
// Domain randomization: arXiv:1703.06907; of dynamics: arXiv:1710.06537.
//
// Thread-safety: as the physics.
class ModelRandomizer {
 public:
  // Keeps the model's present numbers as the defaults. Throws InvalidArgument,
  // naming the key, for a field, object or column that the model does not have.
  ModelRandomizer(const std::vector<FieldRandomization>& fields,
                  Physics& physics);

  // Changes the model of `physics` for episode `episode` >= 0. The state is not
  // reset; call Physics::Reset() next.
  void Draw(Physics& physics, const RandomStream& random,
            int64_t episode) const;
  // Whether Draw() changes height fields, meshes or skins, of which a renderer
  // has copies (Renderer::ReloadAssets()).
  bool changes_assets() const { return changes_assets_; }

 private:
  // One array with the elements that change: rows and columns in their order.
  struct Target {
    std::string field;
    std::vector<int64_t> rows;
    std::vector<int64_t> columns;
    int64_t width;                 // columns of the array
    std::vector<double> defaults;  // [rows, columns]
  };
  struct Entry {
    FieldRandomization options;
    std::vector<Target> targets;
  };

  static Target MakeTarget(const FieldRandomization& options, size_t index,
                           const std::string& field, Physics& physics);
  // Gives the target's elements their defaults.
  static void Reset(const Target& target, Physics& physics);
  static void Change(const Entry& entry, RandomStream random, double ramp,
                     Physics& physics);

  std::vector<Entry> entries_;
  bool changes_assets_ = false;
  bool changes_constants_ = false;
  bool changes_bounds_ = false;
  bool changes_vertices_ = false;
};

}  // namespace replicant::env
