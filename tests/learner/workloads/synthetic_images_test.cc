#include "learner/workloads/synthetic_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/support/graph_runner.h"

namespace replicant::learner {
namespace {

using testing::ToDoubles;

// One batch of a pipeline.
struct ImageBatch {
  explicit ImageBatch(const SyntheticImages& images)
      : image(DType::kU8, images.specs()[0].shape),
        label(DType::kI32, images.specs()[1].shape) {}

  void Fill(SyntheticImages& images) {
    const std::vector<MutableTensorView> views = {image.mutable_view(),
                                                  label.mutable_view()};
    ASSERT_EQ(images.Next({}, views), replicator::NextResult::kOk);
  }

  HostTensor image, label;
};

constexpr SyntheticImagesOptions kImages{
    .batch_size = 6, .side = 8, .num_classes = 3, .seed = 7};

TEST(SyntheticImagesTest, PipelinesTogetherGiveTheBatchOfOne) {
  SyntheticImages one(kImages, {});
  ImageBatch all(one);
  all.Fill(one);
  all.Fill(one);
  const std::vector<double> images = ToDoubles(all.image.view());
  const std::vector<double> labels = ToDoubles(all.label.view());
  for (int id = 0; id < 2; ++id) {
    SyntheticImages part(
        kImages, {.num_replicas = 2, .pipeline_id = id, .num_pipelines = 2});
    ImageBatch batch(part);
    // the second batch, without the first
    part.set_position(1);
    batch.Fill(part);
    EXPECT_EQ(part.position(), 2);
    const std::vector<double> own = ToDoubles(batch.image.view());
    EXPECT_TRUE(std::equal(own.begin(), own.end(),
                           images.begin() + id * int64_t{3 * 8 * 8 * 3}));
    const std::vector<double> own_labels = ToDoubles(batch.label.view());
    EXPECT_TRUE(std::equal(own_labels.begin(), own_labels.end(),
                           labels.begin() + id * int64_t{3}));
  }
}

TEST(SyntheticImagesTest, EveryClassComesAndImagesDiffer) {
  SyntheticImages images(kImages, {});
  ImageBatch batch(images);
  std::map<double, int> count;
  for (int i = 0; i < 50; ++i) {
    batch.Fill(images);
    for (const double label : ToDoubles(batch.label.view())) ++count[label];
  }
  // 300 draws: 100 of each, with a standard deviation of 8
  ASSERT_EQ(count.size(), 3u);
  for (const auto& [label, times] : count) EXPECT_NEAR(times, 100, 45);
  const std::vector<double> values = ToDoubles(batch.image.view());
  EXPECT_FALSE(
      std::equal(values.begin(), values.begin() + 192, values.begin() + 192));
}

TEST(SyntheticImagesTest, GroupsTakeTurns) {
  SyntheticImages one(kImages, {});
  ImageBatch batch(one);
  std::vector<std::vector<double>> batches;
  for (int i = 0; i < 4; ++i) {
    batch.Fill(one);
    batches.push_back(ToDoubles(batch.image.view()));
  }
  for (int group = 0; group < 2; ++group) {
    SyntheticImages own(kImages, {.group_id = group, .num_groups = 2});
    for (int i = 0; i < 2; ++i) {
      batch.Fill(own);
      EXPECT_EQ(ToDoubles(batch.image.view()),
                batches[static_cast<size_t>(2 * i + group)]);
    }
  }
}

}  // namespace
}  // namespace replicant::learner
