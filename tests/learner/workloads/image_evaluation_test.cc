// Evaluations of a classifier, and its file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/tensor/convert.h"
#include "base/tensor/safetensors.h"
#include "learner/workloads/model_file.h"
#include "learner/workloads/resnet_workload.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/variables_of.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using replicant::testing::MessageOf;

constexpr int64_t kSide = 16;
constexpr int64_t kTrain = 40;
// no multiple of a batch
constexpr int64_t kEvaluation = 23;

// Noise that is brighter in the upper third, the middle or the lower third: the
// class. Image kUnreadable of an evaluation is damaged.
class Stripes : public data::ImageSource {
 public:
  Stripes(data::Split split, int64_t unreadable)
      : split_(split), unreadable_(unreadable) {}

  int64_t size() const override {
    return split_ == data::Split::kTrain ? kTrain : kEvaluation;
  }
  const std::vector<std::string>& class_names() const override {
    return names_;
  }
  int64_t num_classes() const override { return 3; }
  std::unique_ptr<data::ImageReader> MakeReader() const override {
    return std::make_unique<Reader>(*this);
  }

 private:
  class Reader : public data::ImageReader {
   public:
    explicit Reader(const Stripes& stripes) : stripes_(stripes) {}
    int32_t Read(int64_t index, data::View /*view*/, int64_t side,
                 std::span<uint8_t> rgb) override {
      if (index == stripes_.unreadable_) throw data::DamagedImage("damaged");
      const bool is_train = stripes_.split_ == data::Split::kTrain;
      RandomStream random(is_train ? 1 : 2, std::to_string(index));
      const auto label = static_cast<int32_t>(index % 3);
      for (int64_t i = 0; i < side * side * 3; ++i) {
        const int64_t third = i / (side * 3) * 3 / side;
        rgb[static_cast<size_t>(i)] = static_cast<uint8_t>(
            random.UniformInt(150) + (third == label ? 100 : 0));
      }
      return label;
    }

   private:
    const Stripes& stripes_;
  };

  data::Split split_;
  int64_t unreadable_;
  std::vector<std::string> names_;
};

data::ImageInput Images(int64_t unreadable = -1) {
  return {.config = {}, .open = [unreadable](data::Split split) {
            return std::make_shared<Stripes>(
                split, split == data::Split::kEvaluation ? unreadable : -1);
          }};
}

models::resnet::ResNetConfig Config() {
  models::resnet::ResNetConfig config;
  config.depth = models::resnet::Depth::k18;
  config.stem = models::resnet::Stem::kSmall;
  config.width = 4;
  config.image_size = kSide;
  config.num_classes = 3;
  config.optimizer.learning_rate = 0.05;
  return config;
}

ResNetWorkload Make(const models::resnet::ResNetConfig& config,
                    const data::ImageInput& images, int replicas = 1,
                    int accumulation_steps = 1) {
  return {config,
          /*batch_size=*/8,
          graph::Precision::kF32,
          /*seed=*/1,
          replicator::MakeReplicator(
              {.strategy = replicas > 1 ? &replicator::Strategy::kInGraph
                                        : &replicator::Strategy::kSingle,
               .replicas = replicas,
               .backend = "cpu",
               .accumulation_steps = accumulation_steps},
              /*seed=*/1),
          images};
}

using Scores = std::map<std::string, double>;
Scores Evaluated(ResNetWorkload& workload) {
  const auto scores = workload.Evaluate();
  return {scores.begin(), scores.end()};
}

void Train(ResNetWorkload& workload, int steps) {
  for (int i = 0; i < steps; ++i) {
    const auto deadline = Clock::Real().Now() + std::chrono::minutes(1);
    ASSERT_EQ(workload.Step(deadline), NextResult::kOk);
  }
}

TEST(ImageEvaluationTest, HasEachImageOnceOnAnyNumberOfReplicas) {
  ResNetWorkload one = Make(Config(), Images());
  Train(one, 30);
  const Scores scores = Evaluated(one);
  EXPECT_EQ(scores.at("evaluation_images"), kEvaluation);
  // chance is 1/3; of three classes the label is always among the five
  EXPECT_GT(scores.at("evaluation_accuracy"), 0.8);
  EXPECT_EQ(scores.at("evaluation_top5_accuracy"), 1.0);
  EXPECT_EQ(Evaluated(one), scores);
  ResNetWorkload two = Make(Config(), Images(), /*replicas=*/2);
  for (const auto& [name, variable] : two.variables().variables()) {
    two.variables().Set(name, one.variables().Get(name).view());
  }
  const Scores of_two = Evaluated(two);
  EXPECT_EQ(of_two.at("evaluation_images"), kEvaluation);
  EXPECT_EQ(of_two.at("evaluation_accuracy"), scores.at("evaluation_accuracy"));
  // sums in another order
  EXPECT_NEAR(of_two.at("evaluation_loss"), scores.at("evaluation_loss"), 1e-5);
}

TEST(ImageEvaluationTest, DamagedImageDoesNotCount) {
  ResNetWorkload workload = Make(Config(), Images(/*unreadable=*/4));
  EXPECT_EQ(Evaluated(workload).at("evaluation_images"), kEvaluation - 1);
}

// A network that says the same of every class knows nothing.
TEST(ImageEvaluationTest, EqualLogitsAreWrong) {
  ResNetWorkload workload = Make(Config(), Images());
  for (const char* name : {"fc/weight", "fc/bias"}) {
    const HostTensor zeros(DType::kF32,
                           workload.variables().at(name).spec.shape);
    workload.variables().Set(name, zeros.view());
  }
  const Scores scores = Evaluated(workload);
  EXPECT_EQ(scores.at("evaluation_accuracy"), 0.0);
  EXPECT_NEAR(scores.at("evaluation_loss"), std::log(3.0), 1e-6);
}

TEST(ImageEvaluationTest, ComesEveryIntervalAndChangesNothing) {
  for (const int replicas : {1, 2}) {
    // with three batches in an update also in the midst of it
    for (const int accumulation_steps : {1, 3}) {
      models::resnet::ResNetConfig config = Config();
      ResNetWorkload without =
          Make(config, Images(), replicas, accumulation_steps);
      config.evaluation_interval_steps = 2;
      ResNetWorkload with =
          Make(config, Images(), replicas, accumulation_steps);
      Train(without, 6);
      Train(with, 1);
      EXPECT_EQ(with.Scalars().size(), 2U);
      Train(with, 5);
      const auto scalars = with.Scalars();
      ASSERT_EQ(scalars.size(), 6U);
      EXPECT_EQ(scalars[2].first, "evaluation_accuracy");
      EXPECT_EQ(scalars[5].second, kEvaluation);
      EXPECT_EQ(ValuesOf(with.variables()), ValuesOf(without.variables()));
    }
  }
}

// Would catch a run that is killed because a long evaluation does not end.
TEST(ImageEvaluationTest, EndsEarlyWhereTheRunStops) {
  models::resnet::ResNetConfig config = Config();
  config.evaluation_interval_steps = 1;
  for (const int replicas : {1, 2}) {
    ResNetWorkload workload = Make(config, Images(), replicas);
    int num_calls = 0;
    workload.SetShouldStop([&] { return ++num_calls >= 2; });
    Train(workload, 1);
    EXPECT_EQ(num_calls, 2);
    EXPECT_EQ(workload.Scalars().size(), 2U);
    // a step may follow before the last checkpoint
    workload.SetShouldStop([] { return false; });
    Train(workload, 1);
    EXPECT_EQ(Evaluated(workload).at("evaluation_images"), kEvaluation);
  }
}

TEST(ImageEvaluationTest, RunWithoutImagesToEvaluateOnHasNone) {
  data::ImageInput images = Images();
  images.open = [](data::Split split) -> std::shared_ptr<data::ImageSource> {
    if (split == data::Split::kEvaluation) return nullptr;
    return std::make_shared<Stripes>(split, -1);
  };
  models::resnet::ResNetConfig config = Config();
  ResNetWorkload workload = Make(config, images);
  Train(workload, 1);
  EXPECT_TRUE(workload.Evaluate().empty());

  config.evaluation_interval_steps = 1;
  for (const data::ImageInput& none : {images, data::ImageInput{}}) {
    EXPECT_EQ(MessageOf<ConfigError>([&] { Make(config, none); }),
              "resnet50.evaluation_interval_steps: 1, but images.evaluation "
              "names no images; hint: set images.evaluation (with "
              "images.source rendered images.num_evaluation); allowed "
              "without: 0");
  }
  // a workload for its variables needs no images
  images.is_read = false;
  Make(config, images);
}

TEST(ImageEvaluationTest, ModelFileStartsAnotherRun) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  ResNetWorkload trained = Make(Config(), Images());
  Train(trained, 5);
  WriteModel(path, trained.ModelVariables(), /*step=*/5, trained.variables());
  const SafetensorsReader reader(path);
  EXPECT_TRUE(reader.Has("layer1.0.conv1.weight"));
  EXPECT_TRUE(reader.Has("fc.bias"));
  EXPECT_EQ(reader.Read("layer2.0.downsample.1.num_batches_tracked")
                .view()
                .Span<int64_t>()[0],
            5);
  for (const SafetensorsInfo& info : reader.tensors()) {
    EXPECT_THAT(info.name, ::testing::Not(::testing::HasSubstr("optimizer")));
    EXPECT_NE(info.name, "step");
  }

  models::resnet::ResNetConfig config = Config();
  config.initial_variables = path;
  ResNetWorkload fine_tuned = Make(config, Images());
  EXPECT_NE(Evaluated(fine_tuned), Evaluated(trained));
  fine_tuned.Begin();
  EXPECT_EQ(Evaluated(fine_tuned), Evaluated(trained));

  // the same numbers in a wider type
  std::vector<std::pair<std::string, HostTensor>> wide;
  for (const SafetensorsInfo& info : reader.tensors()) {
    HostTensor tensor = reader.Read(info.name);
    if (tensor.dtype() == DType::kF32) {
      tensor = ConvertFloating(tensor.view(), DType::kF64);
    }
    wide.emplace_back(info.name, std::move(tensor));
  }
  std::vector<NamedTensorView> views;
  views.reserve(wide.size());
  for (const auto& [name, tensor] : wide)
    views.push_back({name, tensor.view()});
  config.initial_variables = folder.path() / "wide.safetensors";
  WriteSafetensors(config.initial_variables, views);
  ResNetWorkload from_wide = Make(config, Images());
  from_wide.Begin();
  EXPECT_EQ(Evaluated(from_wide), Evaluated(trained));

  config.initial_variables = folder.path() / "none.safetensors";
  EXPECT_EQ(
      MessageOf<ConfigError>([&] { Make(config, Images()).Begin(); }),
      "resnet50.initial_variables: no such path: " + config.initial_variables);
  config.initial_variables = path;
  config.num_classes = 4;
  EXPECT_EQ(MessageOf<IoError>([&] { Make(config, Images()).Begin(); }),
            path.string() + ": fc.bias: want f32 [4], got f32 [3]");
  config.has_initial_head = false;
  ResNetWorkload other_head = Make(config, Images());
  other_head.Begin();
  EXPECT_EQ(ValuesOf(other_head.variables()).at("conv1/weight"),
            ValuesOf(trained.variables()).at("conv1/weight"));
}

// The mean of all values so far as long as that is the faster rate.
TEST(ImageEvaluationTest, AveragesEvaluateAndGoToTheFile) {
  models::resnet::ResNetConfig config = Config();
  config.average_decay = 0.9;
  ResNetWorkload workload = Make(config, Images());
  const auto bias = [&](const char* name) {
    return double{workload.variables().Get(name).view().Span<float>()[0]};
  };
  double mean = 0.0;
  for (int step = 0; step < 14; ++step) {
    Train(workload, 1);
    const double rate = std::max(0.1, 1.0 / (step + 1));
    mean += rate * (bias("fc/bias") - mean);
    EXPECT_NEAR(bias("average/fc/bias"), mean, 1e-6);
  }
  EXPECT_NE(bias("fc/bias"), bias("average/fc/bias"));

  const Scores scores = Evaluated(workload);
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  WriteModel(path, workload.ModelVariables(), 14, workload.variables());
  config.average_decay = 0.0;
  config.initial_variables = path;
  ResNetWorkload reader = Make(config, Images());
  reader.Begin();
  EXPECT_EQ(Evaluated(reader), scores);
}

}  // namespace
}  // namespace replicant::learner
