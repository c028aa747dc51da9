#include "env/mujoco.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fs.h"
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

TEST(MujocoTest, AMissingFileIsNamed) {
  EXPECT_EQ(MessageOfLoading("/nowhere/model.xml"),
            "MJCF: /nowhere/model.xml: no such file");
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
