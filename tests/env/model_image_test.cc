#include "env/model_image.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "env/model_fields.h"
#include "env/mujoco.h"

namespace replicant::env {
namespace {

// A model of about 4 MB, nearly all of it a texture.
MjModelPtr LargeModel(const std::string& color) {
  return CompileModel(
      *ParseMjcfText("<mujoco><asset><texture name='t' type='cube' "
                     "builtin='flat' width='480' height='480' rgb1='" +
                         color +
                         "'/></asset><worldbody><body><freejoint/><geom "
                         "size='.1'/></body></worldbody></mujoco>",
                     "model"),
      "model");
}

// Bytes of the images of models and their copies, a page that several mappings
// share counted once.
int64_t Memory() {
  std::ifstream file("/proc/self/smaps");
  int64_t kilobytes = 0;
  bool is_image = false;
  for (std::string line; std::getline(file, line);) {
    // the line of a mapping: its addresses, and at the end its name
    if (line.find('-') < line.find(' ')) {
      is_image = line.find("memfd:mjModel") != std::string::npos;
    } else if (is_image && line.starts_with("Pss:")) {
      kilobytes += std::stoll(line.substr(4));
    }
  }
  return kilobytes * 1024;
}

TEST(ModelImageTest, CopiesEqualTheModelAndChangeAlone) {
  const MjModelPtr model = LargeModel("1 0 0");
  const MjModelPtr first = CopyModel(*model);
  const MjModelPtr second = CopyModel(*model);
  ASSERT_NE(first.get_deleter().image, nullptr);
  EXPECT_EQ(first.get_deleter().image, second.get_deleter().image);
  EXPECT_EQ(FirstDifference(*model, *first), "");
  first->geom_rgba[0] = 0.25f;
  first->tex_data[7] ^= 1;
  first->opt.timestep *= 2;
  EXPECT_EQ(FirstDifference(*model, *second), "");
  EXPECT_NE(first->tex_data[7], second->tex_data[7]);
  // a copy of the changed copy has the changes
  const MjModelPtr third = CopyModel(*first);
  EXPECT_EQ(FirstDifference(*first, *third), "");
  EXPECT_NE(third.get_deleter().image, second.get_deleter().image);
}

TEST(ModelImageTest, ACopyOutlivesItsModel) {
  MjModelPtr model = LargeModel("0 1 0");
  const MjModelPtr copy = CopyModel(*model);
  const MjDataPtr data = MakeData(*copy);
  model.reset();
  mj_step(copy.get(), data.get());
  EXPECT_LT(data->qvel[2], 0.0);
  const MjModelPtr again = CopyModel(*copy);
  EXPECT_EQ(FirstDifference(*copy, *again), "");
}

TEST(ModelImageTest, AModelThatChangedAfterACopyHasAnImageOfItsOwn) {
  const MjModelPtr model = LargeModel("0 0 1");
  const MjModelPtr before = CopyModel(*model);
  model->body_mass[1] = 77;
  const MjModelPtr after = CopyModel(*model);
  EXPECT_EQ(after->body_mass[1], 77);
  EXPECT_NE(before->body_mass[1], 77);
}

TEST(ModelImageTest, CopiesShareTheMemoryThatTheyDoNotChange) {
  const MjModelPtr model = LargeModel("1 1 0");
  ASSERT_GT(model->nbuffer, 3'000'000);
  std::vector<MjModelPtr> copies;
  copies.push_back(CopyModel(*model));
  for (int i = 0; i < 50; ++i) {
    copies.push_back(CopyModel(*model));
    copies.back()->geom_rgba[0] = 0.5f;
  }
  // a page of each copy at least; 50 whole copies are 150 MB or more
  const int64_t memory = Memory();
  EXPECT_GE(memory, 50 * 4096);
  EXPECT_LT(memory, 8'000'000);
  EXPECT_EQ(copies.front()->geom_rgba[0], model->geom_rgba[0]);
}

TEST(ModelImageTest, ASmallModelIsCopiedWhole) {
  const MjModelPtr model = CompileModel(
      *ParseMjcfText("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>",
                     "model"),
      "model");
  EXPECT_EQ(CopyModel(*model).get_deleter().image, nullptr);
}

}  // namespace
}  // namespace replicant::env
