#include "env/model_randomization.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/error.h"
#include "env/mujoco.h"
#include "tests/env/small_task.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using testing::DefineSmallTask;

// Two legs, so that patterns and rows can be told apart.
constexpr const char* kModel = R"(<mujoco>
  <statistic extent="7"/>
  <worldbody>
    <light name="sun" diffuse="0.5 0.5 0.5"/>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="left_leg" pos="0 0 2">
      <joint name="left" type="slide" axis="0 0 1" damping="2"/>
      <geom name="left" type="capsule" size="0.1 0.3" rgba="0.5 0.5 0.5 1"/>
    </body>
    <body name="right_leg" pos="1 0 2">
      <joint name="right" type="slide" axis="0 0 1" damping="4"/>
      <geom name="right" type="sphere" size="0.2"/>
      <geom name="foot" type="box" size="0.1 0.2 0.3" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="left" gear="3"/></actuator>
</mujoco>)";

Physics MakePhysics() {
  return Physics(CompileModel(*ParseMjcfText(kModel, "legs"), "legs"), "legs");
}

std::vector<double> Numbers(const double* data, int64_t size) {
  return {data, data + size};
}

RandomStream Stream(int episode) {
  return RandomStream(7, "randomization")
      .Substream(fmt::format("episode-{}", episode));
}

// Draws episodes of one field and returns the field's numbers for each.
std::vector<std::vector<double>> Draws(const FieldRandomization& field,
                                       int num_episodes) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer({field}, physics);
  std::vector<std::vector<double>> draws;
  for (int episode = 0; episode < num_episodes; ++episode) {
    randomizer.Draw(physics, Stream(episode), episode);
    draws.push_back(Numbers(physics.model().body_mass, physics.model().nbody));
  }
  return draws;
}

TEST(ModelRandomizationTest, ScalesTheDefaultAndNotTheLastEpisodesNumber) {
  const std::vector<double> defaults =
      Numbers(MakePhysics().model().body_mass, 3);
  double low = 1e9;
  double high = 0.0;
  for (const auto& masses :
       Draws({.fields = {"body_mass"}, .parameters = {0.5, 2.0}}, 2000)) {
    EXPECT_EQ(masses[0], 0.0) << "the world has no mass";
    const double scale = masses[1] / defaults[1];
    low = std::min(low, scale);
    high = std::max(high, scale);
  }
  EXPECT_GE(low, 0.5);
  EXPECT_LE(high, 2.0);
  // 2000 draws come within 1 % of the ends
  EXPECT_LT(low, 0.515);
  EXPECT_GT(high, 1.985);
}

TEST(ModelRandomizationTest, AnEpisodeDoesNotDependOnEarlierOnes) {
  const FieldRandomization field{.fields = {"body_mass"},
                                 .parameters = {0.5, 2.0}};
  const auto all = Draws(field, 4);
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer({field}, physics);
  randomizer.Draw(physics, Stream(3), 3);
  EXPECT_EQ(Numbers(physics.model().body_mass, 3), all[3]);
  EXPECT_NE(all[2], all[3]);
}

TEST(ModelRandomizationTest, ADrawIsOfAllObjectsOfEachOrOfEachNumber) {
  const auto scales = [](DrawKind draw) {
    Physics physics = MakePhysics();
    const ModelRandomizer randomizer({{.fields = {"geom_rgba"},
                                       .kind = RandomizationKind::kSet,
                                       .parameters = {0.0, 1.0},
                                       .draw = draw,
                                       .columns = {0, 1}}},
                                     physics);
    randomizer.Draw(physics, Stream(0), 0);
    const float* rgba = physics.model().geom_rgba;
    EXPECT_EQ(rgba[4 + 3], 1.0F) << "column 3 is none of the columns";
    return std::vector<float>{rgba[0], rgba[1], rgba[4], rgba[5]};
  };
  const auto one = scales(DrawKind::kOne);
  EXPECT_EQ(one, std::vector<float>(4, one[0]));
  const auto row = scales(DrawKind::kRow);
  EXPECT_EQ(row[0], row[1]);
  EXPECT_NE(row[0], row[2]);
  const auto element = scales(DrawKind::kElement);
  EXPECT_NE(element[0], element[1]);
  EXPECT_NE(element[0], element[2]);
}

TEST(ModelRandomizationTest, APatternPicksObjectsByName) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer({{.fields = {"dof_damping"},
                                     .names = "r*",
                                     .kind = RandomizationKind::kSet,
                                     .parameters = {9.0, 9.0}}},
                                   physics);
  randomizer.Draw(physics, Stream(0), 0);
  EXPECT_EQ(Numbers(physics.model().dof_damping, 2),
            (std::vector<double>{2.0, 9.0}));
}

TEST(ModelRandomizationTest, FieldsOfOneEntryGetTheSameDraws) {
  Physics physics = MakePhysics();
  const std::vector<double> mass = Numbers(physics.model().body_mass, 3);
  const std::vector<double> inertia = Numbers(physics.model().body_inertia, 9);
  const ModelRandomizer randomizer(
      {{.fields = {"body_mass", "body_inertia"}, .parameters = {0.5, 2.0}}},
      physics);
  randomizer.Draw(physics, Stream(0), 0);
  const double scale = physics.model().body_mass[1] / mass[1];
  EXPECT_NE(scale, 1.0);
  for (size_t i = 3; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(physics.model().body_inertia[i] / inertia[i], scale);
  }
}

TEST(ModelRandomizationTest, OptionsAndLimitsAndNormalNumbers) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer({{.fields = {"gravity"},
                                     .kind = RandomizationKind::kAdd,
                                     .distribution = DistributionKind::kNormal,
                                     .parameters = {0.0, 100.0},
                                     .draw = DrawKind::kElement,
                                     .limits = {-1.0, 1.0}}},
                                   physics);
  randomizer.Draw(physics, Stream(0), 0);
  for (const double g : physics.model().opt.gravity) {
    EXPECT_EQ(std::abs(g), 1.0) << "a hundred times the limit, and clamped";
  }
}

// Would catch an entry that undoes an earlier one, or one that builds on the
// last episode.
TEST(ModelRandomizationTest, EntriesOfOneNumberBuildOnEachOther) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer(
      {{.fields = {"dof_damping"}, .parameters = {3.0, 3.0}},
       {.fields = {"dof_damping"},
        .names = "right",
        .kind = RandomizationKind::kAdd,
        .parameters = {0.5, 0.5}},
       {.fields = {"dof_damping"}, .parameters = {2.0, 2.0}}},
      physics);
  for (int episode = 0; episode < 2; ++episode) {
    randomizer.Draw(physics, Stream(episode), episode);
    // 2 * 3 * 2, and (4 * 3 + 0.5) * 2
    EXPECT_EQ(Numbers(physics.model().dof_damping, 2),
              (std::vector<double>{12.0, 25.0}));
  }
}

TEST(ModelRandomizationTest, TheChangeGrowsOverTheRamp) {
  const std::vector<double> defaults =
      Numbers(MakePhysics().model().body_mass, 3);
  const auto masses = Draws(
      {.fields = {"body_mass"}, .parameters = {3.0, 3.0}, .ramp_episodes = 4},
      6);
  for (size_t episode = 0; episode < masses.size(); ++episode) {
    const double ramp = std::min(1.0, static_cast<double>(episode) / 4.0);
    EXPECT_DOUBLE_EQ(masses[episode][1], defaults[1] * (1.0 + 2.0 * ramp));
  }
}

// MuJoCo's compiler is the oracle: a model whose XML has the drawn numbers.
TEST(ModelRandomizationTest, ConstantsAreThoseOfAModelCompiledWithTheNumbers) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer(
      {{.fields = {"body_mass", "body_inertia"}, .parameters = {2.0, 2.0}}},
      physics);
  randomizer.Draw(physics, Stream(0), 0);
  std::string doubled = kModel;
  const std::string option = "<statistic extent=\"7\"/>";
  doubled.replace(doubled.find(option), option.size(),
                  option + "<default><geom density=\"2000\"/></default>");
  const MjModelPtr wanted =
      CompileModel(*ParseMjcfText(doubled, "legs"), "legs");
  const mjModel& model = physics.model();
  for (int i = 0; i < model.nv; ++i) {
    EXPECT_DOUBLE_EQ(model.dof_invweight0[i], wanted->dof_invweight0[i]);
  }
  for (int i = 0; i < model.nbody; ++i) {
    EXPECT_DOUBLE_EQ(model.body_subtreemass[i], wanted->body_subtreemass[i]);
  }
  EXPECT_EQ(model.stat.extent, 7.0) << "the author's statistic stays";
}

TEST(ModelRandomizationTest, BoundingVolumesContainAGeomThatGrew) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer({{.fields = {"geom_size"},
                                     .names = "[lrf][eio][fgo]*",
                                     .parameters = {3.0, 3.0}}},
                                   physics);
  randomizer.Draw(physics, Stream(0), 0);
  const mjModel& model = physics.model();
  const int left = physics.GeomId("left");
  EXPECT_DOUBLE_EQ(model.geom_rbound[left], 0.3 + 0.9);
  EXPECT_GE(model.geom_aabb[6 * left + 5], 0.3 + 0.9);
  const int foot = physics.GeomId("foot");
  EXPECT_DOUBLE_EQ(model.geom_rbound[foot], std::hypot(0.3, 0.6, 0.9));
  EXPECT_GE(model.geom_aabb[6 * foot + 4], 0.6);
  // the tree of the right leg
  const int body = physics.BodyId("right_leg");
  const int root = model.body_bvhadr[body];
  EXPECT_GE(model.bvh_aabb[6 * root + 5], 0.9);

  // another draw begins at the default volumes again
  randomizer.Draw(physics, Stream(1), 1);
  EXPECT_DOUBLE_EQ(model.geom_rbound[left], 0.3 + 0.9);
  EXPECT_LT(model.geom_aabb[6 * left + 5], 2.0);
}

// A mesh, a ball and a height field, `scale` times as large and as far apart.
MjModelPtr ScaledModel(double scale) {
  const std::string mjcf = fmt::format(
      R"(<mujoco><asset>
        <mesh name="block" scale="{0} {0} {0}" vertex="-.2 -.3 -.4  .2 -.3 -.4
              -.2 .3 -.4  .2 .3 -.4  -.2 -.3 .4  .2 -.3 .4  -.2 .3 .4
              .2 .3 .4"/>
        <hfield name="hills" nrow="2" ncol="2" size="{0} {0} {1} {2}"
                elevation="0 1 0 .5"/>
      </asset><worldbody>
        <geom type="hfield" hfield="hills"/>
        <body name="free" pos="0 0 2"><freejoint/>
          <inertial pos="{2} 0 {2}" quat="1 .2 .3 0" mass="1"
                    diaginertia=".3 .2 .2"/>
          <geom name="block" type="mesh" mesh="block" euler="10 20 30"/>
          <geom name="ball" size="{2}" pos="{0} 0 0"/>
        </body></worldbody></mujoco>)",
      scale, 0.5 * scale, 0.1 * scale);
  return CompileModel(*ParseMjcfText(mjcf, "scaled"), "scaled");
}

// MuJoCo's compiler is the oracle again. It derives a mesh's volumes before it
// rounds the vertices to float32.
TEST(ModelRandomizationTest, BoundsAreThoseOfAModelCompiledWithTheNumbers) {
  Physics physics(ScaledModel(1.0), "scaled");
  const auto twice = [](const char* field, const char* names) {
    return FieldRandomization{
        .fields = {field}, .names = names, .parameters = {2.0, 2.0}};
  };
  const ModelRandomizer randomizer(
      {twice("mesh_vert", "*"), twice("hfield_size", "*"),
       twice("geom_size", "ball"), twice("geom_pos", "ball"),
       twice("body_ipos", "free")},
      physics);
  randomizer.Draw(physics, Stream(0), 0);
  const MjModelPtr wanted = ScaledModel(2.0);
  const mjModel& model = physics.model();
  const auto expect_equal = [](const double* found, const double* expected,
                               int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
    }
  };
  ASSERT_EQ(model.nbvhstatic, wanted->nbvhstatic);
  expect_equal(model.geom_rbound, wanted->geom_rbound, model.ngeom);
  expect_equal(model.geom_aabb, wanted->geom_aabb, 6 * model.ngeom);
  expect_equal(model.bvh_aabb, wanted->bvh_aabb, 6 * model.nbvhstatic);
}

TEST(ModelRandomizationTest, WhatTheModelDoesNotHaveIsNamed) {
  const auto message = [](const FieldRandomization& field) {
    return MessageOf<InvalidArgument>([&] {
      Physics physics = MakePhysics();
      ModelRandomizer({field}, physics);
    });
  };
  EXPECT_EQ(message({.fields = {"body_mas"}}),
            "task.randomization.fields[0].fields: mjModel has no "
            "floating-point array 'body_mas'; did you mean 'body_mass'?");
  EXPECT_EQ(message({.fields = {"body_mass"}, .names = "arm*"}),
            "task.randomization.fields[0].names: no body of the model "
            "matches 'arm*'; the names are world, left_leg, right_leg");
  EXPECT_EQ(message({.fields = {"gravity"}, .names = "arm*"}),
            "task.randomization.fields[0].names: 'arm*': rows of gravity "
            "have no names; allowed: '*'");
  EXPECT_EQ(message({.fields = {"geom_rgba"}, .columns = {4}}),
            "task.randomization.fields[0].columns: 4 of geom_rgba; "
            "allowed: 0 to 3");
  EXPECT_EQ(message({.fields = {"geom_size"}}),
            "task.randomization.fields[0].names: geom 0 is a plane, mesh "
            "or height field, whose size is no number of geom_size; allowed: "
            "spheres, capsules, cylinders, ellipsoids and boxes");
  EXPECT_EQ(message({.fields = {"body_mass", "geom_friction"}}),
            "task.randomization.fields[0]: body_mass and geom_friction "
            "get the same draws, but differ in size; give them elements of "
            "their own");
}

TEST(ModelRandomizationTest, ANegativeMassIsRefused) {
  Physics physics = MakePhysics();
  const ModelRandomizer randomizer({{.fields = {"body_mass"},
                                     .names = "left_leg",
                                     .kind = RandomizationKind::kSet,
                                     .parameters = {-1.0, -1.0}}},
                                   physics);
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { randomizer.Draw(physics, Stream(0), 0); }),
            "legs: task.randomization: drew -1 for row 1 of body_mass; want >= "
            "0; hint: set limits");
}

TEST(ModelRandomizationTest, AnEnvironmentDrawsAtEachResetAndAfterASeek) {
  const TemporaryFolder folder;
  const auto make = [&folder] {
    return MakeEnvironment(DefineSmallTask(folder),
                           {.seed = 3,
                            .randomization = {{.fields = {"body_mass"},
                                               .names = "mass",
                                               .parameters = {0.5, 2.0}}}});
  };
  const auto environment = make();
  std::vector<double> masses;
  for (int episode = 0; episode < 3; ++episode) {
    environment->Reset({});
    masses.push_back(environment->physics().model().body_mass[1]);
  }
  EXPECT_NE(masses[1], masses[2]);
  const auto other = make();
  other->SeekEpisode(2);
  other->Reset({});
  EXPECT_EQ(other->physics().model().body_mass[1], masses[2]);
}

TEST(ModelRandomizationTest, TheConfigurationRefusesWhatIsNoDistribution) {
  const auto problems = [](const std::string& yaml) {
    return MessageOf<ConfigError>([&yaml] {
      (void)config::Load<FieldRandomization>(
          config::Document::FromText("a.yaml", yaml));
    });
  };
  EXPECT_THAT(problems("{fields: [body_mass], parameters: [2, 1]}"),
              ::testing::HasSubstr("parameters: low 2 > high 1"));
  EXPECT_THAT(problems("{fields: [body_mass], distribution: normal, "
                       "parameters: [0, -1]}"),
              ::testing::HasSubstr("parameters: standard deviation -1 < 0"));
  EXPECT_THAT(problems("{fields: [body_mass], distribution: log_uniform, "
                       "parameters: [0, 1]}"),
              ::testing::HasSubstr("log_uniform needs low > 0, got 0"));
  EXPECT_THAT(problems("{fields: [body_mass], limits: [1]}"),
              ::testing::HasSubstr("limits: [1]; allowed: [] or [low, high]"));
  EXPECT_THAT(problems("{names: a}"),
              ::testing::HasSubstr("fields: names no field"));
}

}  // namespace
}  // namespace replicant::env
