#include "env/model_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mujoco/mujoco.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "env/mujoco.h"
#include "env/task_registry.h"
#include "env/tasks/suite.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using ::testing::HasSubstr;

class ModelCopyTest : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& name,
                              const std::string& text) const {
    const auto path = from_ / name;
    MakeFolders(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // The compiled model as bytes, without the paths of its assets.
  static std::vector<char> Bytes(const std::filesystem::path& mjcf) {
    const MjSpecPtr spec = ParseMjcf(mjcf);
    const MjModelPtr model = CompileModel(*spec, mjcf);
    std::memset(model->paths, 0, static_cast<size_t>(model->npaths));
    for (int i = 0; i < model->nmesh; ++i) model->mesh_pathadr[i] = 0;
    for (int i = 0; i < model->ntex; ++i) model->tex_pathadr[i] = 0;
    for (int i = 0; i < model->nskin; ++i) model->skin_pathadr[i] = 0;
    for (int i = 0; i < model->nhfield; ++i) model->hfield_pathadr[i] = 0;
    model->npaths = 0;
    model->nbuffer = 0;
    std::vector<char> bytes(static_cast<size_t>(mj_sizeModel(model.get())));
    mj_saveModel(model.get(), nullptr, bytes.data(),
                 static_cast<int>(bytes.size()));
    return bytes;
  }

  const TemporaryFolder folder_;
  const std::filesystem::path from_ = folder_.path() / "from";
  const std::filesystem::path to_ = folder_.path() / "to";
};

// A tetrahedron.
constexpr const char* kObject =
    "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"
    "f 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n";

// Includes within includes, folders of assets, an asset outside the model's
// folder and one that is used twice.
TEST_F(ModelCopyTest, TheCopyIsWholeWithoutTheOriginal) {
  Write("shared/thing.obj", kObject);
  Write("robot/meshes/arm/part.obj", kObject);
  Write("robot/parts/options.xml",
        "<mujocoinclude><option timestep='0.0123456789012345'/>"
        "</mujocoinclude>");
  Write("robot/parts/assets.xml",
        "<mujocoinclude><include file='options.xml'/>"
        "<compiler meshdir='meshes'/><asset>"
        "<!-- <include file='nowhere.xml'/> -->"
        "<mesh file='arm/part.obj'/>"
        "<mesh name='big' file='arm/part.obj' scale='2 2 2'/>"
        "<mesh file='../../shared/thing.obj'/></asset></mujocoinclude>");
  const auto main =
      Write("robot/robot.xml",
            "<mujoco model='robot'><include file='parts/assets.xml'/>"
            "<worldbody><body><freejoint/><geom type='mesh' mesh='part'/>"
            "<geom type='mesh' mesh='big'/><geom type='mesh' mesh='thing'/>"
            "</body></worldbody></mujoco>");
  const std::vector<char> wanted = Bytes(main);
  const auto copy = CopyMjcf(main, to_);
  EXPECT_EQ(copy, to_ / "model.xml");
  std::filesystem::remove_all(from_);
  // and wherever it is moved
  std::filesystem::rename(to_, folder_.path() / "moved");
  EXPECT_TRUE(Bytes(folder_.path() / "moved" / "model.xml") == wanted);
}

TEST_F(ModelCopyTest, CopiesEveryModelOfTheControlSuite) {
  std::set<std::filesystem::path> models;
  for (const TaskDefinition& task : SuiteTasks()) models.insert(task.model);
  EXPECT_GT(models.size(), 15u);
  for (const auto& model : models) {
    const auto path = SuiteModelFolder() / model;
    const auto copy = CopyMjcf(path, to_ / model.stem());
    EXPECT_TRUE(Bytes(copy) == Bytes(path)) << model;
  }
}

TEST_F(ModelCopyTest, NamesTheFileThatIsMissing) {
  const auto main = Write("a.xml",
                          "<mujoco><asset><mesh name='m' file='m.obj'/>"
                          "</asset></mujoco>");
  EXPECT_EQ(testing::MessageOf<IoError>([&] { CopyMjcf(main, to_); }),
            "MJCF: " + (from_ / "m.obj").string() + ": no such file");
  const auto loop = Write("b.xml", "<mujoco><include file='b.xml'/></mujoco>");
  EXPECT_THAT(testing::MessageOf<IoError>([&] { CopyMjcf(loop, to_); }),
              HasSubstr("includes more than 32 levels deep"));
  const auto broken = Write("c.xml", "<mujoco>");
  EXPECT_THAT(testing::MessageOf<IoError>([&] { CopyMjcf(broken, to_); }),
              HasSubstr((from_ / "c.xml").string()));
}

}  // namespace
}  // namespace replicant::env
