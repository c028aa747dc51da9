#include "env/model_bounds.h"

#include <gtest/gtest.h>

#include <cmath>

namespace replicant::env {
namespace {

// Every kind of geom, in bodies of several.
constexpr const char* kModel = R"(<mujoco>
  <asset>
    <mesh name="wedge" vertex="0 0 0  .5 0 0  0 .5 0  0 0 .6  .4 .4 .5"/>
    <mesh name="ring" builtin="supertorus" params="12 .4 1 1"
          scale=".3 .3 .3"/>
    <hfield name="hills" nrow="2" ncol="3" size="1 2 .5 .1"
            elevation="0 1 0 .5 0 .2"/>
  </asset>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <geom type="hfield" hfield="hills" pos="3 0 0" euler="10 0 0"/>
    <body pos="0 0 2"><freejoint/>
      <geom size=".2"/>
      <geom type="capsule" size=".1 .3" pos="1 0 0" euler="10 20 30"/>
      <geom type="cylinder" size=".1 .3" pos="0 1 0" euler="10 20 30"/>
      <geom type="ellipsoid" size=".1 .2 .3" pos="0 0 1" euler="10 20 30"/>
      <geom type="box" size=".1 .2 .3" pos="-1 0 0" euler="10 20 30"/>
    </body>
    <body pos="0 0 4"><freejoint/>
      <geom type="mesh" mesh="wedge" euler="30 20 10"/>
      <geom type="mesh" mesh="ring" pos="1 1 0"/>
    </body>
  </worldbody>
</mujoco>)";

// MuJoCo's compiler is the oracle. It derives a mesh's volumes before it rounds
// the vertices to float32.
TEST(ModelBoundsTest, AModelKeepsTheVolumesThatItWasCompiledWith) {
  const MjModelPtr wanted =
      CompileModel(*ParseMjcfText(kModel, "shapes"), "shapes");
  const MjModelPtr model = CopyModel(*wanted);
  const auto spoil = [](double* data, int64_t size) {
    for (int64_t i = 0; i < size; ++i) data[i] = -1.0;
  };
  spoil(model->bvh_aabb, 6 * model->nbvhstatic);
  // but for the plane, whose volume has no end
  spoil(model->geom_aabb + 6, 6 * (model->ngeom - 1));
  spoil(model->geom_rbound + 1, model->ngeom - 1);
  FitBounds(*model, /*has_new_vertices=*/true);
  const auto expect_equal = [](const double* found, const double* expected,
                               int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-6 * (1.0 + std::abs(expected[i])))
          << i;
    }
  };
  expect_equal(model->geom_aabb, wanted->geom_aabb, 6 * model->ngeom);
  expect_equal(model->geom_rbound, wanted->geom_rbound, model->ngeom);
  expect_equal(model->bvh_aabb, wanted->bvh_aabb, 6 * model->nbvhstatic);

  // without new vertices meshes stay as they are
  const int64_t first_mesh = model->ngeom - 2;
  spoil(model->geom_rbound, model->ngeom);
  FitBounds(*model, /*has_new_vertices=*/false);
  expect_equal(model->geom_rbound + 1, wanted->geom_rbound + 1, first_mesh - 1);
  EXPECT_EQ(model->geom_rbound[first_mesh], -1.0);
}

}  // namespace
}  // namespace replicant::env
