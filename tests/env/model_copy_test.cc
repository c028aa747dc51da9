#include "env/model_copy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mujoco/mujoco.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "env/model_fields.h"
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

  // The copy compiles to the model of `mjcf`, from a folder without the
  // original's files next to it.
  void ExpectEqualCopy(const std::filesystem::path& mjcf) {
    const MjModelPtr wanted = CompileModel(*ParseMjcf(mjcf), mjcf);
    std::filesystem::remove_all(to_);
    const auto copy = CopyMjcf(mjcf, to_);
    const auto hidden = folder_.path() / "hidden";
    std::filesystem::rename(from_, hidden);
    try {
      EXPECT_EQ(FirstDifference(*wanted, *CompileModel(*ParseMjcf(copy), copy)),
                "");
    } catch (const IoError& error) {
      ADD_FAILURE() << error.what();
    }
    std::filesystem::rename(hidden, from_);
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

// Each file is a tetrahedron of another size, so that a copy with the wrong one
// compiles to another model.
std::string Object(int size) {
  return fmt::format(
      "v 0 0 0\nv {} 0 0\nv 0 1 0\nv 0 0 1\n"
      "f 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n",
      size);
}

// A model with one mesh named "m"; `begin` precedes its assets.
std::string ModelOf(const std::string& file, const std::string& begin = "") {
  return "<mujoco>" + begin + "<asset><mesh name='m' file='" + file +
         "'/></asset><worldbody><body name='b'><geom type='mesh' mesh='m'/>"
         "</body></worldbody></mujoco>";
}

// A model that attaches body "b" of a submodel.
std::string AttachmentOf(const std::string& file,
                         const std::string& begin = "") {
  return "<mujoco>" + begin + "<asset><model name='s' file='" + file +
         "'/></asset><worldbody><attach model='s' body='b' prefix='p'/>"
         "</worldbody></mujoco>";
}

// Two links to one file give two meshes with names of their own.
TEST_F(ModelCopyTest, NamelessAssetsByLinksToOneFileKeepTheirNames) {
  Write("finger.obj", Object(1));
  std::filesystem::create_symlink("finger.obj", from_ / "left.obj");
  std::filesystem::create_symlink("finger.obj", from_ / "right.obj");
  ExpectEqualCopy(Write("a.xml",
                        "<mujoco><asset><mesh file='left.obj'/>"
                        "<mesh file='right.obj'/></asset><worldbody>"
                        "<geom type='mesh' mesh='left'/>"
                        "<geom type='mesh' mesh='right'/></worldbody>"
                        "</mujoco>"));
}

// MuJoCo shortens "link/.." as text; the kernel follows the link.
TEST_F(ModelCopyTest, ParentFoldersAreThoseOfTheTextNotOfTheLink) {
  for (const std::string& main :
       {ModelOf("../f.obj"), AttachmentOf("../s.xml"),
        std::string("<mujoco><include file='../i.xml'/></mujoco>")}) {
    std::filesystem::remove_all(from_);
    Write("real/deep/a.xml", main);
    std::filesystem::create_symlink("real/deep", from_ / "link");
    for (const std::string folder : {"", "real/"}) {
      const std::string object = Object(folder.empty() ? 1 : 2);
      Write(folder + "f.obj", object);
      Write(folder + "i.xml", ModelOf("f.obj"));
      Write(folder + "s.xml", ModelOf("f.obj"));
    }
    ExpectEqualCopy(from_ / "link" / "a.xml");
  }
  Write("a.xml", ModelOf("f.obj"));
  Write("real/a.xml", ModelOf("f.obj"));
  Write("f.obj", Object(3));
  Write("real/f.obj", Object(4));
  ExpectEqualCopy(from_ / "link" / ".." / "a.xml");
}

TEST_F(ModelCopyTest, BackslashesSeparateFolders) {
  Write("x/m.obj", Object(1));
  Write("x/s.xml", ModelOf("m.obj"));
  Write("y/w.xml", "<mujoco><include file='..\\y\\v.xml'/></mujoco>");
  Write("y/v.xml", "<mujoco><option timestep='.003'/></mujoco>");
  const std::string strip = "<compiler strippath='true'/>";
  ExpectEqualCopy(
      Write("a.xml", ModelOf("x\\m.obj", "<include file='y\\w.xml'/>")));
  ExpectEqualCopy(Write("b.xml", AttachmentOf("x\\s.xml", strip)));
  ExpectEqualCopy(
      Write("c.xml", ModelOf("m.obj", "<compiler meshdir='.\\x'/>")));
  Write("m.obj", Object(2));
  ExpectEqualCopy(Write("d.xml", ModelOf("x\\m.obj", strip)));
}

// strippath cuts the folders of assets, never those of a submodel.
TEST_F(ModelCopyTest, StrippathLeavesSubmodelsAlone) {
  Write("s.xml", ModelOf("m.obj"));
  Write("m.obj", Object(1));
  Write("parts/s.xml", ModelOf("m.obj"));
  Write("parts/m.obj", Object(2));
  const std::string strip = "<compiler strippath='true'/>";
  ExpectEqualCopy(Write("a.xml", AttachmentOf("parts/s.xml", strip)));
  ExpectEqualCopy(Write("b.xml", ModelOf("parts/m.obj", strip)));
  ExpectEqualCopy(Write("c.xml", ModelOf("/nowhere/m.obj", strip)));
  std::filesystem::remove(from_ / "s.xml");
  ExpectEqualCopy(Write("a.xml", AttachmentOf("parts/s.xml", strip)));
}

// In each case all places hold a file; only one is MuJoCo's. The folders of the
// search and of the compilation differ by kind of asset.
TEST_F(ModelCopyTest, EveryKindOfAssetIsFoundWhereMujocoFindsIt) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"<asset><mesh name='m' file='k.obj'/></asset><worldbody>"
       "<geom type='mesh' mesh='m'/></worldbody>",
       "k.obj"},
      {"<worldbody><flexcomp name='f' type='mesh' file='k.obj' dim='2' "
       "mass='1'/></worldbody>",
       "k.obj"},
      {"<asset><hfield name='h' size='1 1 1 1' file='k.bin'/></asset>"
       "<worldbody><geom type='hfield' hfield='h'/></worldbody>",
       "k.bin"},
      {"<asset><texture name='t' type='2d' file='k.tex'/></asset>", "k.tex"},
      {"<asset><model name='s' file='k.xml'/></asset><worldbody>"
       "<attach model='s' body='b' prefix='p'/></worldbody>",
       "k.xml"},
  };
  // a height field: rows, columns, then their heights
  const auto heights = [](int size) {
    const int32_t shape[] = {2, 2};
    const float values[] = {0, 1, 2, static_cast<float>(size)};
    std::string bytes(sizeof(shape) + sizeof(values), '\0');
    std::memcpy(bytes.data(), shape, sizeof(shape));
    std::memcpy(bytes.data() + sizeof(shape), values, sizeof(values));
    return bytes;
  };
  // a texture: width, height, then red, green and blue
  const auto texture = [](int size) {
    const int32_t shape[] = {1, 1};
    std::string bytes(sizeof(shape) + 3, static_cast<char>(size));
    std::memcpy(bytes.data(), shape, sizeof(shape));
    return bytes;
  };
  const auto contents = [&](const std::string& file, int size) {
    if (file == "k.tex") return texture(size);
    if (file == "k.bin") return heights(size + 2);
    if (file == "k.xml") return ModelOf(fmt::format("{}.obj", size));
    return Object(size);
  };
  int num_models = 0;
  for (const auto& [assets, file] : kinds) {
    for (const std::string compiler :
         {"meshdir='d'", "texturedir='d' assetdir='e'",
          "assetdir='e' meshdir='d'"}) {
      for (const bool is_included : {false, true}) {
        // every third set of the places where the file may be, which has each
        // pair of places in all four ways
        const char* const places[] = {"", "d/", "e/", "inc/", "inc/d/"};
        for (int set = 1; set < 32; set += 3) {
          std::filesystem::remove_all(from_);
          for (int i = 0; i < 5; ++i) {
            if ((set >> i & 1) == 0) continue;
            Write(places[i] + file, contents(file, i + 1));
            Write(places[i] + fmt::format("{}.obj", i + 1), Object(i + 1));
          }
          const std::string text = "<compiler " + compiler + "/>" + assets;
          Write("inc/i.xml", "<mujoco>" + text + "</mujoco>");
          const auto main =
              Write("a.xml",
                    "<mujoco>" +
                        (is_included ? "<include file='inc/i.xml'/>" : text) +
                        "</mujoco>");
          SCOPED_TRACE(fmt::format("{}: {} {} {}", file, compiler,
                                   is_included ? "included" : "", set));
          try {
            CompileModel(*ParseMjcf(main), main);
          } catch (const IoError&) {
            continue;
          }
          ++num_models;
          ExpectEqualCopy(main);
        }
      }
    }
  }
  EXPECT_GT(num_models, 130);
}

// The archive is copied as it is, whether it is the model or a part.
TEST_F(ModelCopyTest, ArchivesAreCopiedWhole) {
  const auto zip = [&](const std::string& archive, const std::string& root) {
    Write("in/" + root, ModelOf("m.obj"));
    Write("in/m.obj", Object(2));
    const CommandResult made = RunCommand(
        {.command = {"python3", "-m", "zipfile", "-c", from_ / archive,
                     from_ / "in" / root, from_ / "in" / "m.obj"}},
        std::chrono::minutes(1));
    ASSERT_TRUE(made.status.ok()) << made.output;
    std::filesystem::remove_all(from_ / "in");
  };
  MakeFolders(from_);
  zip("robot.mjz", "model.xml");
  zip("arm.zip", "arm.xml");
  for (const std::string archive : {"robot.mjz", "arm.zip"}) {
    ExpectEqualCopy(from_ / archive);
    ExpectEqualCopy(Write("a.xml", AttachmentOf(archive)));
  }
  EXPECT_EQ(CopyMjcf(from_ / "arm.zip", to_), to_ / "arm.zip");
}

// A URDF's meshes lie in `filename`; MuJoCo does not read those of its visuals.
TEST_F(ModelCopyTest, AUrdfIsCopiedWithItsMeshes) {
  const auto urdf = [](const std::string& begin, const std::string& mesh) {
    return "<robot name='r'>" + begin +
           "<link name='b'><inertial><mass value='1'/><inertia ixx='1' "
           "iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/></inertial>"
           "<visual><geometry><mesh filename='gone.obj'/></geometry></visual>"
           "<collision><geometry><mesh filename='" +
           mesh +
           "'/></geometry></collision><collision><geometry><mesh filename='" +
           mesh +
           "' scale='2 2 2'/></geometry></collision></link><link name='c'>"
           "<collision><geometry><mesh filename='other/m.obj'/></geometry>"
           "</collision></link><joint name='j' type='continuous'>"
           "<parent link='b'/><child link='c'/></joint></robot>";
  };
  const auto compiler = [](const std::string& attributes) {
    return "<mujoco><compiler " + attributes + "/></mujoco>";
  };
  for (const std::string folder : {"", "d/"}) {
    const int size = folder.empty() ? 0 : 3;
    Write(folder + "m.obj", Object(size + 1));
    Write(folder + "x/m.obj", Object(size + 2));
    Write(folder + "other/m.obj", Object(size + 3));
  }
  ExpectEqualCopy(Write("a.urdf", urdf("", "x/m.obj")));
  ExpectEqualCopy(Write("b.urdf", urdf(compiler("meshdir='d'"), "x\\m.obj")));
  ExpectEqualCopy(
      Write("c.urdf", urdf(compiler("strippath='true'"), "x/m.obj")));
  ExpectEqualCopy(Write("d.urdf", urdf(compiler("strippath='false'"),
                                       (from_ / "x/m.obj").string())));
  ExpectEqualCopy(Write("e.xml", AttachmentOf("a.urdf")));
}

TEST_F(ModelCopyTest, NamesTheIncludeThatIsMissingOrBroken) {
  const auto main = Write("a.xml", "<mujoco><include file='i.xml'/></mujoco>");
  EXPECT_EQ(
      replicant::testing::MessageOf<IoError>([&] { CopyMjcf(main, to_); }),
      "MJCF: " + (from_ / "i.xml").string() + ": no such file");
  const auto loop = Write("b.xml", "<mujoco><include file='b.xml'/></mujoco>");
  EXPECT_THAT(
      replicant::testing::MessageOf<IoError>([&] { CopyMjcf(loop, to_); }),
      HasSubstr("includes more than 32 levels deep"));
  const auto broken = Write("c.xml", "<mujoco>");
  EXPECT_THAT(
      replicant::testing::MessageOf<IoError>([&] { CopyMjcf(broken, to_); }),
      HasSubstr((from_ / "c.xml").string()));
}

}  // namespace
}  // namespace replicant::env
