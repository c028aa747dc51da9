#include "env/model_bounds.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace replicant::env {
namespace {

// A box is a centre and half its sides, six numbers, as MuJoCo stores it.

// The corners of boxes and points.
struct Corners {
  std::array<double, 3> low = {mjMAXVAL, mjMAXVAL, mjMAXVAL};
  std::array<double, 3> high = {-mjMAXVAL, -mjMAXVAL, -mjMAXVAL};

  void AddPoint(const float* point) {
    for (size_t i = 0; i < 3; ++i) {
      low[i] = std::min(low[i], double{point[i]});
      high[i] = std::max(high[i], double{point[i]});
    }
  }
  void AddBox(const double* box) {
    for (size_t i = 0; i < 3; ++i) {
      low[i] = std::min(low[i], box[i] - box[3 + i]);
      high[i] = std::max(high[i], box[i] + box[3 + i]);
    }
  }
  void Write(double* box) const {
    for (size_t i = 0; i < 3; ++i) {
      box[i] = (low[i] + high[i]) / 2;
      box[3 + i] = (high[i] - low[i]) / 2;
    }
  }
};

// Fits a tree's nodes from the last to the first, since children stand behind
// their parent. `fit(id, box)` fits the leaf of an object.
template <typename Fit>
void FitTree(mjModel& model, int first, int count, const Fit& fit) {
  for (int node = first + count - 1; node >= first; --node) {
    double* box = model.bvh_aabb + 6 * node;
    if (model.bvh_nodeid[node] >= 0) {
      fit(model.bvh_nodeid[node], box);
      continue;
    }
    Corners corners;
    for (int i = 0; i < 2; ++i) {
      const int child = first + model.bvh_child[2 * node + i];
      corners.AddBox(model.bvh_aabb + 6 * child);
    }
    corners.Write(box);
  }
}

// Its leaves are faces.
void FitMesh(mjModel& model, int mesh) {
  const float* vertices = model.mesh_vert + 3 * model.mesh_vertadr[mesh];
  const int* faces = model.mesh_face + 3 * model.mesh_faceadr[mesh];
  FitTree(model, model.mesh_bvhadr[mesh], model.mesh_bvhnum[mesh],
          [&](int face, double* box) {
            Corners corners;
            for (int i = 0; i < 3; ++i) {
              corners.AddPoint(vertices + 3 * faces[3 * face + i]);
            }
            corners.Write(box);
          });
}

// Radius of the sphere around a geom's origin that contains its box.
double RadiusOfBox(const double* box) {
  std::array<double, 3> farthest;
  for (size_t i = 0; i < 3; ++i) farthest[i] = std::abs(box[i]) + box[3 + i];
  return std::hypot(farthest[0], farthest[1], farthest[2]);
}

void FitGeom(mjModel& model, int geom, bool has_new_vertices) {
  const double* size = model.geom_size + 3 * geom;
  double* box = model.geom_aabb + 6 * geom;
  double* radius = model.geom_rbound + geom;
  const auto fit = [&](double x, double y, double z, double new_radius) {
    const std::array<double, 6> fitted = {0.0, 0.0, 0.0, x, y, z};
    std::copy(fitted.begin(), fitted.end(), box);
    *radius = new_radius;
  };
  switch (model.geom_type[geom]) {
    case mjGEOM_SPHERE:
      return fit(size[0], size[0], size[0], size[0]);
    case mjGEOM_CAPSULE:
      return fit(size[0], size[0], size[0] + size[1], size[0] + size[1]);
    case mjGEOM_CYLINDER:
      return fit(size[0], size[0], size[1], std::hypot(size[0], size[1]));
    case mjGEOM_ELLIPSOID:
      return fit(size[0], size[1], size[2],
                 std::max({size[0], size[1], size[2]}));
    case mjGEOM_BOX:
      return fit(size[0], size[1], size[2],
                 std::hypot(size[0], size[1], size[2]));
    case mjGEOM_HFIELD: {
      // from its highest point, size[2], down to its bottom, -size[3]
      const double* field = model.hfield_size + 4 * model.geom_dataid[geom];
      fit(field[0], field[1], (field[2] + field[3]) / 2, 0.0);
      box[2] = (field[2] - field[3]) / 2;
      *radius = RadiusOfBox(box);
      return;
    }
    case mjGEOM_MESH: {
      if (!has_new_vertices) return;
      const int mesh = model.geom_dataid[geom];
      const float* vertices = model.mesh_vert + 3 * model.mesh_vertadr[mesh];
      Corners corners;
      for (int i = 0; i < model.mesh_vertnum[mesh]; ++i) {
        corners.AddPoint(vertices + 3 * i);
      }
      corners.Write(box);
      *radius = RadiusOfBox(box);
      return;
    }
    default:
      return;
  }
}

// Its leaves are geoms, in the body's frame of inertia.
void FitBody(mjModel& model, int body) {
  using Matrix = std::array<double, 9>;
  Matrix inertial;
  mju_quat2Mat(inertial.data(), model.body_iquat + 4 * body);
  FitTree(model, model.body_bvhadr[body], model.body_bvhnum[body],
          [&](int geom, double* box) {
            Matrix own, rotation;
            mju_quat2Mat(own.data(), model.geom_quat + 4 * geom);
            mju_mulMatTMat(rotation.data(), inertial.data(), own.data(), 3, 3,
                           3);
            const double* aabb = model.geom_aabb + 6 * geom;
            std::array<double, 3> centre;
            mju_mulMatVec3(centre.data(), own.data(), aabb);
            mju_addTo3(centre.data(), model.geom_pos + 3 * geom);
            mju_subFrom3(centre.data(), model.body_ipos + 3 * body);
            mju_mulMatTVec3(box, inertial.data(), centre.data());
            for (size_t i = 0; i < 3; ++i) {
              box[3 + i] = 0.0;
              for (size_t j = 0; j < 3; ++j) {
                box[3 + i] += std::abs(rotation[3 * i + j]) * aabb[3 + j];
              }
            }
          });
}

}  // namespace

void FitBounds(mjModel& model, bool has_new_vertices) {
  for (int mesh = 0; has_new_vertices && mesh < model.nmesh; ++mesh) {
    FitMesh(model, mesh);
  }
  for (int geom = 0; geom < model.ngeom; ++geom) {
    FitGeom(model, geom, has_new_vertices);
  }
  for (int body = 0; body < model.nbody; ++body) FitBody(model, body);
}

}  // namespace replicant::env
