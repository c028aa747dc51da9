#include "env/mujoco.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/images/encode_png.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

std::string MessageOfLoading(const std::filesystem::path& path) {
  try {
    const MjSpecPtr spec = ParseMjcf(path);
    CompileModel(*spec, path);
  } catch (const IoError& e) {
    return e.what();
  }
  return "no IoError";
}

TEST(MujocoTest, LoadsAModelWithItsData) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ball.xml";
  AtomicWriteFile(path,
                  "<mujoco><worldbody><body><freejoint/><geom size='.1'/>"
                  "</body></worldbody></mujoco>");
  const MjSpecPtr spec = ParseMjcf(path);
  const MjModelPtr model = CompileModel(*spec, path);
  const MjModelPtr copy = CopyModel(*model);
  const MjDataPtr data = MakeData(*copy);
  mj_step(copy.get(), data.get());
  EXPECT_EQ(model->nq, 7);
  EXPECT_LT(data->qvel[2], 0.0);
}

// Would catch: a renderer that reads pixels which the model does not have.
TEST(MujocoTest, ATextureLeftInItsFileIsDecoded) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ball.xml";
  const std::vector<uint8_t> rgb(size_t{3} * 4 * 4, 77);
  AtomicWriteFile(folder.path() / "grey.png",
                  data::EncodePng({.height = 4, .width = 4}, rgb));
  AtomicWriteFile(path,
                  "<mujoco><compiler passthrough='textures'/><asset>"
                  "<texture name='t' type='2d' file='grey.png'/></asset>"
                  "<worldbody><geom size='.1'/></worldbody></mujoco>");
  const MjModelPtr model = CompileModel(*ParseMjcf(path), path);
  ASSERT_EQ(model->ntex, 1);
  ASSERT_GE(model->tex_adr[0], 0);
  EXPECT_EQ(model->tex_width[0], 4);
  EXPECT_EQ(model->tex_data[model->tex_adr[0]], 77);
}

// Would catch: an asset of MuJoCo's cache, which knows whole seconds.
TEST(MujocoTest, AFileThatWasWrittenAnewIsReadAnew) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "mesh.xml";
  AtomicWriteFile(path,
                  "<mujoco><asset><mesh name='m' file='m.obj'/></asset>"
                  "<worldbody><geom type='mesh' mesh='m'/></worldbody>"
                  "</mujoco>");
  const auto extent_of = [&](int size) {
    AtomicWriteFile(folder.path() / "m.obj",
                    fmt::format("v 0 0 0\nv {0} 0 0\nv 0 {0} 0\nv 0 0 {0}\n"
                                "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n",
                                size));
    return CompileModel(*ParseMjcf(path), path)->stat.extent;
  };
  const double extent = extent_of(1);
  for (int size = 2; size < 5; ++size) {
    EXPECT_NEAR(extent_of(size), size * extent, 1e-9) << size;
  }
}

TEST(MujocoTest, AnErrorIsThrown) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ball.xml";
  // an arena in which the contacts of a step do not fit
  AtomicWriteFile(path,
                  "<mujoco><size memory='4K'/><worldbody>"
                  "<body><freejoint/><geom size='.1'/></body>"
                  "<body><freejoint/><geom size='.1'/></body>"
                  "</worldbody></mujoco>");
  const MjModelPtr model = CompileModel(*ParseMjcf(path), path);
  const MjDataPtr data = MakeData(*model);
  EXPECT_THAT(replicant::testing::MessageOf<Error>(
                  [&] { mj_step(model.get(), data.get()); }),
              ::testing::StartsWith("MuJoCo: "));
}

TEST(MujocoTest, FilesOfATextLieInTheWorkingFolder) {
  const TemporaryFolder folder;
  AtomicWriteFile(folder.path() / "common.xml",
                  "<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>");
  const std::string text =
      "<mujoco><include file='common.xml'/>"
      "<worldbody><geom size='.2'/></worldbody></mujoco>";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const MjSpecPtr spec = ParseMjcfText(text, "text");
  std::filesystem::current_path(before);
  EXPECT_EQ(CompileModel(*spec, "text")->ngeom, 2);
  EXPECT_EQ(replicant::testing::MessageOf<IoError>(
                [&] { ParseMjcfText(text, "text"); }),
            "MJCF: text: XML Error: Error opening file 'common.xml' Element "
            "'include', line 1");
}

TEST(MujocoTest, AMissingFileIsNamed) {
  EXPECT_EQ(MessageOfLoading("/nowhere/model.xml"),
            "MJCF: /nowhere/model.xml: no such file");
  const std::string long_name(300, 'x');
  EXPECT_EQ(MessageOfLoading(long_name),
            "MJCF: " + long_name + ": no such file");
}

TEST(MujocoTest, AnArchiveWithANameInCapitalsIsNamed) {
  const TemporaryFolder folder;
  for (const char* name : {"UP.MJZ", "up.Zip"}) {
    const auto path = folder.path() / name;
    AtomicWriteFile(path, "PK");
    EXPECT_EQ(MessageOfLoading(path),
              "MJCF: " + path.string() +
                  ": MuJoCo knows an archive by .mjz or .zip in small letters; "
                  "hint: rename it");
  }
}

TEST(MujocoTest, AMissingMeshOrTextureIsNamed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.xml";
  const auto message = [&](const std::string& asset) {
    AtomicWriteFile(path, "<mujoco><asset>" + asset + "</asset></mujoco>");
    return MessageOfLoading(path);
  };
  EXPECT_THAT(message("<mesh name='m' file='gone.obj'/>"),
              ::testing::HasSubstr("gone.obj"));
  EXPECT_THAT(message("<texture name='t' type='2d' file='gone.png'/>"),
              ::testing::HasSubstr("gone.png"));
}

// The plugins lie in MuJoCo's package, which Python's module loads by itself.
TEST(MujocoTest, PluginsOfMujocoAreLoadedAndAMissingOneIsNamed) {
  const std::string body =
      "<worldbody><body><joint name='j'/><geom size='.1'/></body></worldbody>";
  const MjSpecPtr spec = ParseMjcfText(
      "<mujoco><extension><plugin plugin='mujoco.pid'><instance name='p'>"
      "<config key='kp' value='40'/></instance></plugin></extension>" +
          body +
          "<actuator><plugin joint='j' plugin='mujoco.pid' instance='p'/>"
          "</actuator></mujoco>",
      "pid");
  EXPECT_EQ(CompileModel(*spec, "pid")->nplugin, 1);
  EXPECT_THAT(
      replicant::testing::MessageOf<IoError>([&] {
        ParseMjcfText(
            "<mujoco><extension><plugin plugin='my.own'/></extension>"
            "</mujoco>",
            "own");
      }),
      ::testing::AllOf(::testing::HasSubstr("my.own"),
                       ::testing::HasSubstr("; hint: plugins are loaded from"),
                       ::testing::HasSubstr("mujoco/plugin")));
}

TEST(MujocoTest, ABrokenFileGivesMujocosMessage) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "broken.xml";
  AtomicWriteFile(path,
                  "<mujoco><worldbody><geom size='a'/></worldbody></mujoco>");
  EXPECT_EQ(
      MessageOfLoading(path),
      "MJCF: " + path.string() +
          ": XML Error: bad format in attribute 'size' Element 'geom', line 1");
  AtomicWriteFile(
      path, "<mujoco><worldbody><geom type='mesh'/></worldbody></mujoco>");
  EXPECT_THAT(MessageOfLoading(path), ::testing::StartsWith("MJCF: "));
}

}  // namespace
}  // namespace replicant::env
