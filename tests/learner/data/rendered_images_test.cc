// Frames of the Control Suite as images to learn from.
#include "learner/data/rendered_images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "env/tasks/suite.h"

namespace replicant::data {
namespace {

constexpr int64_t kSide = 24;

using Rgb = std::vector<uint8_t>;

class RenderedImagesTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const ImageSource> Open(Split split,
                                                 double variation = 0.5,
                                                 uint64_t seed = 1) {
    ImagesConfig config;
    config.source = "rendered";
    config.num_train = 100;
    config.num_evaluation = 50;
    config.variation = variation;
    return RenderedImages(FewTasks())(config, split, seed);
  }
  static env::TaskRegistry FewTasks() {
    std::vector<env::TaskDefinition> tasks = env::SuiteTasks();
    std::erase_if(tasks, [](const env::TaskDefinition& task) {
      return !std::set<std::string>{"cartpole-balance", "cartpole-swingup",
                                    "cheetah-run", "dog-run", "reacher-easy"}
                  .contains(task.name);
    });
    return env::TaskRegistry(std::move(tasks));
  }
  static Rgb Draw(const ImageSource& source, int64_t index) {
    Rgb rgb(static_cast<size_t>(kSide * kSide * 3));
    const auto reader = source.MakeReader();
    EXPECT_EQ(reader->Read(index, View(1.0), kSide, rgb),
              index % source.num_classes());
    return rgb;
  }
};

TEST_F(RenderedImagesTest, ClassesAreDomains) {
  const auto source = Open(Split::kTrain);
  EXPECT_EQ(source->size(), 100);
  // the dog has a skin
  EXPECT_EQ(source->class_names(),
            (std::vector<std::string>{"cartpole", "cheetah", "reacher"}));
  EXPECT_EQ(source->num_classes(), 3);
}

TEST_F(RenderedImagesTest, AnImageIsAFunctionOfSeedSplitAndIndex) {
  const auto source = Open(Split::kTrain);
  const int64_t classes = source->num_classes();
  const Rgb first = Draw(*source, 2);
  EXPECT_EQ(Draw(*source, 2), first);
  // another image of the same class, before it by the same reader
  const auto reader = source->MakeReader();
  Rgb other(first.size()), again(first.size());
  reader->Read(2 + classes, View(1.0), kSide, other);
  reader->Read(2, View(1.0), kSide, again);
  EXPECT_NE(other, first);
  EXPECT_EQ(again, first);
  EXPECT_NE(Draw(*Open(Split::kEvaluation), 2), first);
  EXPECT_NE(Draw(*Open(Split::kTrain, 0.5, /*seed=*/2), 2), first);
}

// The mean distance between images of one class, in grey levels.
TEST_F(RenderedImagesTest, VaryMoreWithVariation) {
  const auto distance = [](double variation) {
    const auto source = Open(Split::kTrain, variation);
    const int64_t classes = source->num_classes();
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t label = 0; label < classes; ++label) {
      const Rgb a = Draw(*source, label);
      for (int64_t i = 1; i < 5; ++i) {
        const Rgb b = Draw(*source, label + i * classes);
        for (size_t k = 0; k < a.size(); ++k) {
          sum += std::abs(int{a[k]} - int{b[k]});
        }
        count += static_cast<int64_t>(a.size());
      }
    }
    return sum / static_cast<double>(count);
  };
  const double none = distance(0.0), half = distance(0.5), all = distance(1.0);
  EXPECT_GT(half, 1.3 * none);
  EXPECT_GT(all, half);
}

TEST_F(RenderedImagesTest, NothingToEvaluateOnIsNoSource) {
  ImagesConfig config;
  config.source = "rendered";
  config.num_evaluation = 0;
  EXPECT_EQ(RenderedImages(FewTasks())(config, Split::kEvaluation, 1), nullptr);
}

}  // namespace
}  // namespace replicant::data
