#include "env/model_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using ::testing::Contains;
using ::testing::Not;

class ModelFieldsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = LoadModel(testing::DefineSmallTask(folder_), {});
  }
  TemporaryFolder folder_;
  MjModelPtr model_;
};

TEST_F(ModelFieldsTest, ReachesFloatingPointArraysOnly) {
  EXPECT_EQ(ModelField(*model_, "geom_pos").shape(), Shape({1, 3}));
  EXPECT_EQ(ModelField(*model_, "geom_pos").data(),
            reinterpret_cast<std::byte*>(model_->geom_pos));
  EXPECT_EQ(ModelField(*model_, "geom_rgba").dtype(), DType::kF32);
  EXPECT_EQ(ModelField(*model_, "dof_damping").shape(), Shape({1}));
  EXPECT_EQ(ModelField(*model_, "hfield_data").shape(), Shape({0}));
  EXPECT_THAT(ModelFieldNames(*model_), Not(Contains("jnt_qposadr")));
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { ModelField(*model_, "jnt_qposadr"); }),
      "model field 'jnt_qposadr': mjModel has no floating-point array of "
      "that name");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { ModelField(*model_, "geom_poss"); }),
      "model field 'geom_poss': mjModel has no floating-point array of that "
      "name; did you mean 'geom_pos'?");
}

TEST_F(ModelFieldsTest, NamesTheFirstDifferenceOfTwoModels) {
  const MjModelPtr copy = CopyModel(*model_);
  EXPECT_EQ(FirstDifference(*model_, *copy), "");
  copy->geom_rgba[3] = 0.5f;
  EXPECT_EQ(FirstDifference(*model_, *copy), "geom_rgba");
  copy->opt.timestep *= 2.0;
  EXPECT_EQ(FirstDifference(*model_, *copy), "opt");
  TaskDefinition other = testing::DefineSmallTask(folder_);
  other.edit = [](mjSpec& spec) { mjs_addKey(&spec); };
  EXPECT_EQ(FirstDifference(*model_, *LoadModel(other, {})), "nkey");
}

TEST_F(ModelFieldsTest, ReplacesAnArray) {
  const std::array<double, 3> position = {1.0, 2.0, 3.0};
  SetModelField(*model_, "geom_pos",
                {DType::kF64, Shape({1, 3}), position.data()});
  EXPECT_EQ(model_->geom_pos[2], 3.0);
}

TEST_F(ModelFieldsTest, RefusesWhatDoesNotFitAndChangesNothing) {
  const std::array<double, 3> position = {1.0, 2.0, std::nan("")};
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              SetModelField(*model_, "geom_pos",
                            {DType::kF64, Shape({1, 3}), position.data()});
            }),
            "model field 'geom_pos': element 2 is nan, but must be finite");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              SetModelField(*model_, "geom_pos",
                            {DType::kF64, Shape({3}), position.data()});
            }),
            "model field 'geom_pos': got f64[3], expected f64[1,3]");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              SetModelField(*model_, "geom_rgba",
                            {DType::kF64, Shape({1, 3}), position.data()});
            }),
            "model field 'geom_rgba': got f64[1,3], expected f32[1,4]");
  EXPECT_EQ(model_->geom_pos[0], 0.0);
}

}  // namespace
}  // namespace replicant::env
