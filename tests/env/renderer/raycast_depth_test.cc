// Depth and segmentation of the ray caster against mj_ray(), one ray for each
// pixel. tests/python/test_render.py compares them with mujoco.Renderer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/mujoco.h"
#include "env/renderer/raycast/raycast_renderer.h"
#include "env/renderer/scene.h"

namespace replicant::env {
namespace {

constexpr int kHeight = 60, kWidth = 80;
constexpr size_t kPixels = size_t{kHeight} * kWidth;

constexpr const char* kPerspective = "";
constexpr const char* kOrthographic = "projection='orthographic' fovy='4'";

struct Model {
  explicit Model(const std::string& geoms,
                 const std::string& projection = kPerspective,
                 const std::string& assets = "")
      : model(CompileModel(
            *ParseMjcfText(
                "<mujoco><visual><map znear='.02' zfar='40'/></visual>"
                "<statistic extent='1'/><asset>"
                "<mesh name='wedge' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/>" +
                    assets +
                    "</asset>"
                    "<worldbody><camera pos='0 -5 2' xyaxes='1 0 0 0 .35 1' " +
                    projection + "/>" + geoms + "</worldbody></mujoco>",
                "model"),
            "model")),
        data(MakeData(*model)),
        scene(*model) {
    mj_forward(model.get(), data.get());
  }
  mjvScene& Update() { return scene.Update(*model, *data, /*camera=*/0); }

  // Distance along the view direction and the geom of pixel (x, y)'s middle:
  // -1, -1 without one.
  std::pair<double, int> Ray(int x, int y) const {
    const bool is_parallel = model->cam_projection[0] == mjPROJ_ORTHOGRAPHIC;
    const double slope =
        (is_parallel
             ? model->cam_fovy[0]
             : 2 * std::tan(model->cam_fovy[0] * std::numbers::pi / 360)) /
        kHeight;
    const double right = (x + 0.5 - 0.5 * kWidth) * slope;
    const double up = (0.5 * kHeight - y - 0.5) * slope;
    const auto in_world = [&](double a, double b, double c) {
      const std::array<double, 3> v{a, b, c};
      std::array<double, 3> turned;
      mju_mulMatVec3(turned.data(), data->cam_xmat, v.data());
      return turned;
    };
    const auto direction =
        is_parallel ? in_world(0, 0, -1) : in_world(right, up, -1);
    auto start = is_parallel ? in_world(right, up, 0) : in_world(0, 0, 0);
    for (size_t i = 0; i < 3; ++i) start[i] += data->cam_xpos[i];
    int geom = -1;
    const double t =
        mj_ray(model.get(), data.get(), start.data(), direction.data(),
               /*geomgroup=*/nullptr, /*flg_static=*/1, /*bodyexclude=*/-1,
               &geom, /*normal=*/nullptr);
    return {t, geom};
  }

  MjModelPtr model;
  MjDataPtr data;
  Scene scene;
};

struct Seen {
  std::vector<float> depth = std::vector<float>(kPixels);
  std::vector<int32_t> objects = std::vector<int32_t>(2 * kPixels);
};

Seen Look(Model& m) {
  Seen seen;
  RaycastRenderer renderer(*m.model);
  const mjvScene& scene = m.Update();
  renderer.RenderDepth(*m.model, scene, kHeight, kWidth, seen.depth);
  renderer.RenderSegmentation(*m.model, scene, kHeight, kWidth, seen.objects);
  return seen;
}

class RaycastFlatDepthTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Cameras, RaycastFlatDepthTest,
                         ::testing::Values(kPerspective, kOrthographic));

TEST_P(RaycastFlatDepthTest, FlatShapesAreWhereRaysMeetThem) {
  Model m(
      "<geom type='plane' size='4 4 .1'/>"
      "<geom type='box' size='.4 .3 .5' pos='-.8 0 .8' euler='20 30 40'/>"
      "<geom type='mesh' mesh='wedge' pos='1 0 .5' euler='0 20 10'/>"
      "<geom type='box' size='.3 .3 .3' pos='.2 1 .6' rgba='1 1 1 .3'/>",
      GetParam());
  const Seen seen = Look(m);
  size_t wrong = 0;
  std::vector<size_t> count(5);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const int place = y * kWidth + x;
      const auto at = static_cast<size_t>(place);
      const auto [distance, geom] = m.Ray(x, y);
      const int slot = geom + 1;
      ++count[static_cast<size_t>(slot)];
      if (seen.objects[2 * at] != geom) {
        // a ray along an edge
        ++wrong;
        continue;
      }
      EXPECT_EQ(seen.objects[2 * at + 1], geom < 0 ? -1 : int{mjOBJ_GEOM});
      // float32 rays
      const double want = geom < 0 ? 40 : distance;
      ASSERT_NEAR(seen.depth[at], want, 2e-4 * want) << x << ", " << y;
    }
  }
  EXPECT_LE(wrong, 2U);
  for (const size_t pixels : count) EXPECT_GT(pixels, 50U);
}

// Mesh `boxes` of boxes apart from each other, low and high corners.
std::string MeshOfBoxes(
    const std::vector<std::array<std::array<double, 3>, 2>>& boxes) {
  constexpr std::array<std::array<int, 3>, 12> kFaces = {{{0, 2, 3},
                                                          {0, 3, 1},
                                                          {4, 5, 7},
                                                          {4, 7, 6},
                                                          {0, 1, 5},
                                                          {0, 5, 4},
                                                          {2, 6, 7},
                                                          {2, 7, 3},
                                                          {0, 4, 6},
                                                          {0, 6, 2},
                                                          {1, 3, 7},
                                                          {1, 7, 5}}};
  std::string vertices, faces;
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t corner = 0; corner < 8; ++corner) {
      for (size_t axis = 0; axis < 3; ++axis) {
        vertices += fmt::format(" {}", boxes[i][corner >> axis & 1][axis]);
      }
    }
    for (const auto& face : kFaces) {
      for (const int corner : face) {
        faces += fmt::format(" {}", 8 * static_cast<int>(i) + corner);
      }
    }
  }
  return fmt::format("<mesh name='boxes' vertex='{}' face='{}'/>", vertices,
                     faces);
}

// Would catch a camera in a hand whose own mesh hides everything: triangles
// before the near plane are cut off, and others of their mesh stand behind.
TEST_P(RaycastFlatDepthTest, NothingIsHiddenByWhatTheNearPlaneCutsOff) {
  const std::array<std::array<double, 3>, 2> before_near = {
      {{-.004, -4.998, 1.996}, {.004, -4.99, 2.004}}};
  const std::array<std::array<double, 3>, 2> far = {{{-1, 0, -1}, {1.5, 1, 1}}};
  const std::string geom = "<geom type='mesh' mesh='boxes'/>";
  Model cut(geom, GetParam(), MeshOfBoxes({far, before_near}));
  Model alone(geom, GetParam(), MeshOfBoxes({far}));
  const Seen seen = Look(cut);
  const Seen want = Look(alone);
  EXPECT_GT(std::ranges::count(want.objects, int{mjOBJ_GEOM}), 500);

  const auto draw = [](Model& m) {
    std::vector<uint8_t> picture(3 * kPixels);
    RaycastRenderer renderer(*m.model);
    renderer.RenderScene(*m.model, m.Update(), kHeight, kWidth, picture);
    return picture;
  };
  const std::vector<uint8_t> picture = draw(cut);
  const std::vector<uint8_t> expected = draw(alone);
  // MuJoCo moves a mesh to its centre, which rounds: rays along an edge differ
  int wrong = 0;
  for (size_t i = 0; i < kPixels; ++i) {
    if (seen.objects[2 * i] != want.objects[2 * i]) {
      ++wrong;
      continue;
    }
    ASSERT_NEAR(seen.depth[i], want.depth[i], 1e-5 * want.depth[i]) << i;
    for (size_t c = 3 * i; c < 3 * i + 3; ++c) {
      if (std::abs(picture[c] - expected[c]) > 2) ++wrong;
    }
  }
  EXPECT_LE(wrong, 60);
}

// MuJoCo draws a curved shape as a polyhedron whose corners lie on it: 28
// slices and 16 stacks cut up to 1 - cos(pi / 28) cos(pi / 32) = 0.011 radii
// off, which is more along a slanted ray.
TEST(RaycastDepthTest, CurvedShapesArePolyhedraInsideTheShape) {
  const std::array<std::string, 4> shapes{
      "type='sphere' size='.8'", "type='ellipsoid' size='.5 .8 .6'",
      "type='capsule' size='.4 .5'", "type='cylinder' size='.6 .5'"};
  for (const std::string& shape : shapes) {
    SCOPED_TRACE(shape);
    Model m("<geom pos='.2 0 .8' euler='20 50 10' " + shape + "/>");
    const Seen seen = Look(m);
    size_t outside = 0, missed = 0, hits = 0;
    double deepest = 0;
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        const int place = y * kWidth + x;
        const auto at = static_cast<size_t>(place);
        const auto [distance, geom] = m.Ray(x, y);
        if (seen.objects[2 * at] < 0) {
          missed += geom < 0 ? 0U : 1U;
          continue;
        }
        if (geom < 0) {
          ++outside;
          continue;
        }
        ++hits;
        EXPECT_GE(seen.depth[at], distance - 1e-4);
        deepest = std::max(deepest, seen.depth[at] - distance);
      }
    }
    EXPECT_EQ(outside, 0U);
    // at most a quarter of the silhouette's pixels
    EXPECT_LE(missed, 20U);
    EXPECT_GT(hits, 150U);
    EXPECT_GT(deepest, 1e-4);
    EXPECT_LT(deepest, 0.15);
  }
}

TEST(RaycastDepthTest, GeomsWithoutASegmentationNumberAreLeftOut) {
  Model m("<geom type='sphere' size='.8' pos='0 0 1'/>");
  mjvScene& scene = m.Update();
  RaycastRenderer renderer(*m.model);
  Seen seen;
  renderer.RenderSegmentation(*m.model, scene, kHeight, kWidth, seen.objects);
  EXPECT_EQ(std::ranges::count(seen.objects, int{mjOBJ_GEOM}) > 100, true);
  scene.geoms[0].segid = -1;
  renderer.RenderSegmentation(*m.model, scene, kHeight, kWidth, seen.objects);
  EXPECT_EQ(std::ranges::count(seen.objects, -1), 2 * std::ssize(seen.depth));
}

TEST(RaycastDepthTest, OutputsOfAnotherSizeAreRefused) {
  Model m("<geom type='sphere' size='.8'/>");
  RaycastRenderer renderer(*m.model);
  const mjvScene& scene = m.Update();
  std::vector<float> depth(7);
  try {
    renderer.RenderDepth(*m.model, scene, 3, 4, depth);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "Renderer: 7 numbers given for a picture of 3 x 4 x 1, which "
                 "needs 12");
  }
}

TEST(RaycastDepthTest, EffectsThatAreNotDrawnAreNamed) {
  Model m("<geom type='sphere' size='.8'/>");
  RaycastRenderer renderer(*m.model);
  mjvScene& scene = m.Update();
  std::vector<uint8_t> rgb(3 * kPixels);
  const auto message = [&] {
    try {
      renderer.RenderScene(*m.model, scene, kHeight, kWidth, rgb);
    } catch (const UnsupportedScene& error) {
      return std::string(error.what());
    }
    return std::string("drawn");
  };
  EXPECT_EQ(message(), "drawn");
  scene.flags[mjRND_ADDITIVE] = 1;
  EXPECT_EQ(message(),
            "raycast: the scene has the flag mjRND_ADDITIVE, which cannot be "
            "drawn; hint: use the renderer gl");
  scene.flags[mjRND_ADDITIVE] = 0;
  scene.geoms[0].label[0] = 'a';
  EXPECT_EQ(
      message(),
      "raycast: the scene has a geom with a label, which cannot be drawn; "
      "hint: use the renderer gl");
}

}  // namespace
}  // namespace replicant::env
