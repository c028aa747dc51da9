// Scores of generated images, and the networks of their features.
#include "learner/workloads/image_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/tensor/safetensors.h"
#include "learner/workloads/feature_extractor.h"
#include "learner/workloads/model_file.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "replicator/make_replicator.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using replicant::testing::MessageOf;

std::vector<uint8_t> Noise(int64_t count, int64_t side, uint64_t seed,
                           int64_t lowest = 0) {
  RandomStream random(seed, "noise");
  std::vector<uint8_t> rgb(static_cast<size_t>(count * side * side * 3));
  for (uint8_t& value : rgb) {
    value = static_cast<uint8_t>(lowest + random.UniformInt(256 - lowest));
  }
  return rgb;
}

HostTensor Random(const Shape& shape, uint64_t seed, float offset = 0.0F) {
  RandomStream random(seed, "weights");
  HostTensor tensor(DType::kF32, shape);
  for (float& value : tensor.MutableSpan<float>()) {
    value = 0.2F * static_cast<float>(random.Normal()) + offset;
  }
  return tensor;
}

// Files of one network.
class Files {
 public:
  // One tensor, and a description.
  void Write(const std::string& name, const HostTensor& tensor,
             const std::string& description) const {
    WriteSafetensors(weights_,
                     std::vector<NamedTensorView>{{name, tensor.view()}}, {});
    AtomicWriteFile(description_, description);
  }
  std::unique_ptr<FeatureExtractor> Load() const {
    return std::make_unique<FeatureExtractor>(weights_, description_, 1);
  }
  std::string Problem() const {
    return MessageOf<Error>([this] { static_cast<void>(Load()); });
  }
  const std::filesystem::path& weights() const { return weights_; }

 private:
  TemporaryFolder folder_;
  std::filesystem::path weights_ = folder_.path() / "net.safetensors";
  std::filesystem::path description_ = folder_.path() / "net.yaml";
};

models::resnet::ResNetConfig SmallResNet() {
  models::resnet::ResNetConfig config;
  config.depth = models::resnet::Depth::k18;
  config.width = 4;
  config.image_size = 32;
  config.num_classes = 3;
  return config;
}

// Exports an untrained ResNet with its description.
std::string Export(const std::filesystem::path& path) {
  ResNetWorkload workload(
      SmallResNet(), /*batch_size=*/4, graph::Precision::kF32, /*seed=*/3,
      replicator::MakeReplicator(
          {.strategy = &replicator::Strategy::kSingle, .backend = "cpu"},
          /*seed=*/3));
  WriteModel(path, workload.ModelVariables(), 0, workload.variables());
  return workload.ModelDescription();
}

std::string Block(const std::string& name, const std::string& from, int stride,
                  bool has_shortcut) {
  const auto conv = [&](const std::string& op, const std::string& input,
                        int step, int padding) {
    return "  - {op: conv, weights: " + name + "." + op +
           (input.empty() ? "" : ", from: [" + input + "]") +
           ", stride: " + std::to_string(step) + ", padding: [" +
           std::to_string(padding) + ", " + std::to_string(padding) + "]}\n";
  };
  const auto norm = [&](const std::string& op, const std::string& called) {
    return "  - {op: batch_norm, weights: " + name + "." + op +
           (called.empty() ? "" : ", name: " + called) + "}\n";
  };
  std::string text = conv("conv1", from, stride, 1) + norm("bn1", "") +
                     "  - {op: relu}\n" + conv("conv2", "", 1, 1) +
                     norm("bn2", name + ".y");
  std::string shortcut = from;
  if (has_shortcut) {
    shortcut = name + ".x";
    text +=
        conv("downsample.0", from, stride, 0) + norm("downsample.1", shortcut);
  }
  return text + "  - {op: add, from: [" + name + ".y, " + shortcut +
         "]}\n  - {op: relu, name: " + name + "}\n";
}

// The same ResNet-18, once by its keys and once by its layers.
TEST(FeatureExtractorTest, LayersGiveWhatTheResNetGives) {
  const Files files;
  const std::string by_keys = Export(files.weights());
  std::string by_layers =
      "image_size: 32\nmean: [0.485, 0.456, 0.406]\n"
      "deviation: [0.229, 0.224, 0.225]\nfeatures: pool\nlogits: fc\nlayers:\n"
      "  - {op: conv, weights: conv1, stride: 2, padding: [3, 3]}\n"
      "  - {op: batch_norm, weights: bn1}\n  - {op: relu}\n"
      "  - {op: max_pool, window: 3, stride: 2, padding: [1, 1], name: stem}\n";
  std::string from = "stem";
  for (int stage = 1; stage <= 4; ++stage) {
    for (int i = 0; i < 2; ++i) {
      const std::string name =
          "layer" + std::to_string(stage) + "." + std::to_string(i);
      const bool is_first = stage > 1 && i == 0;
      by_layers += Block(name, from, is_first ? 2 : 1, is_first);
      from = name;
    }
  }
  by_layers +=
      "  - {op: global_average_pool, name: pool}\n"
      "  - {op: linear, weights: fc, name: fc}\n";

  const std::vector<uint8_t> images = Noise(35, 32, 1);
  std::vector<ImageFeatures> results;
  for (const std::string& description : {by_keys, by_layers}) {
    AtomicWriteFile(files.weights().parent_path() / "net.yaml", description);
    const auto extractor = files.Load();
    EXPECT_EQ(extractor->feature_size(), 32);
    EXPECT_EQ(extractor->num_classes(), 3);
    extractor->Extract(images, 32, &results.emplace_back());
  }
  ASSERT_EQ(results[0].features.size(), 35U * 32U);
  ASSERT_EQ(results[1].features.size(), 35U * 32U);
  ASSERT_EQ(results[1].probabilities.size(), 35U * 3U);
  for (size_t i = 0; i < results[0].features.size(); ++i) {
    EXPECT_NEAR(results[0].features[i], results[1].features[i], 1e-4);
  }
  for (size_t i = 0; i < results[0].probabilities.size(); ++i) {
    EXPECT_NEAR(results[0].probabilities[i], results[1].probabilities[i], 1e-5);
  }
}

TEST(FeatureExtractorTest, ConcatAndPoolsByHand) {
  const Files files;
  // 1x2 kernel over a 2x2 image with a column of zeros on each side
  HostTensor weight(DType::kF32, Shape({1, 3, 1, 2}));
  weight.MutableSpan<float>()[0] = 1.0F;  // red, left
  weight.MutableSpan<float>()[1] = 2.0F;  // red, right
  files.Write("c.weight", weight,
              "image_size: 2\nmean: [0, 0, 0]\ndeviation: [1, 1, 1]\n"
              "features: f\nlayers:\n"
              "  - {op: conv, weights: c, padding: [0, 1], name: c}\n"
              "  - {op: average_pool, from: [c], padding: [1, 1], stride: 3, "
              "name: inside}\n"
              "  - {op: average_pool, from: [c], padding: [1, 1], stride: 3, "
              "has_padding_in_mean: true, name: all}\n"
              "  - {op: concat, from: [inside, all]}\n"
              "  - {op: global_average_pool, name: f}\n");
  std::vector<uint8_t> image(2 * 2 * 3);
  image[0] = 255;  // red, left on top
  const auto extractor = files.Load();
  EXPECT_EQ(extractor->num_classes(), 0);
  ImageFeatures features;
  extractor->Extract(image, 2, &features);
  // the convolution gives 2, 1, 0 on top and 0 below; the one window has 4 of
  // its elements inside, and 9 in all
  ASSERT_EQ(features.features.size(), 2U);
  EXPECT_NEAR(features.features[0], 3.0F / 4.0F, 1e-6);
  EXPECT_NEAR(features.features[1], 3.0F / 9.0F, 1e-6);
}

TEST(FeatureExtractorTest, NamesWhatDoesNotFit) {
  const Files files;
  const std::string head =
      "image_size: 4\nfeatures: f\nlayers:\n"
      "  - {op: global_average_pool}\n";
  const HostTensor weight = Random(Shape({2, 5}), 1);
  files.Write("fc.weight", weight,
              head + "  - {op: linear, weights: fc, name: f}\n");
  EXPECT_NE(files.Problem().find("layers.1 f: "), std::string::npos)
      << files.Problem();
  files.Write("fc.weight", weight,
              head + "  - {op: linear, weights: head, name: f}\n");
  EXPECT_NE(files.Problem().find("net.safetensors: no tensor 'head.weight'"),
            std::string::npos)
      << files.Problem();
  files.Write("fc.weight", weight,
              head + "  - {op: relu, from: [g], name: f}\n");
  EXPECT_NE(
      files.Problem().find("layer 1 is from 'g', which is no layer before it"),
      std::string::npos)
      << files.Problem();
  files.Write("fc.weight", weight,
              "image_size: 4\nfeatures: f\nlayers:\n  - {op: relu, name: f}\n");
  EXPECT_NE(files.Problem().find("features: want vectors, 'f' is [32,4,4,3]"),
            std::string::npos)
      << files.Problem();
}

// Noise of two classes in turn: dark and bright. Sorted, all dark images come
// first.
class NoiseSource : public data::ImageSource {
 public:
  NoiseSource(int64_t size, int64_t unreadable, bool is_sorted = false)
      : size_(size), unreadable_(unreadable), is_sorted_(is_sorted) {}

  int64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override {
    return names_;
  }
  int64_t num_classes() const override { return 2; }
  std::unique_ptr<data::ImageReader> MakeReader() const override {
    return std::make_unique<Reader>(*this);
  }

 private:
  class Reader : public data::ImageReader {
   public:
    explicit Reader(const NoiseSource& source) : source_(source) {}
    int32_t Read(int64_t index, data::View /*view*/, int64_t side,
                 std::span<uint8_t> rgb) override {
      if (index == source_.unreadable_) throw data::DamagedImage("damaged");
      const auto label = static_cast<int32_t>(
          source_.is_sorted_ ? 2 * index / source_.size_ : index % 2);
      std::ranges::copy(
          Noise(1, side, static_cast<uint64_t>(index), label * 128),
          rgb.begin());
      return label;
    }

   private:
    const NoiseSource& source_;
  };

  const int64_t size_, unreadable_;
  const bool is_sorted_;
  std::vector<std::string> names_;
};

class ImageScoresTest : public ::testing::Test {
 protected:
  ImageScoresTest() {
    AtomicWriteFile(files_.weights().parent_path() / "net.yaml",
                    Export(files_.weights()));
  }
  ImageScores Make(int64_t size, int64_t unreadable = -1,
                   bool has_extractor = true) const {
    return {has_extractor ? files_.Load() : nullptr,
            std::make_shared<NoiseSource>(size, unreadable),
            {.num_images = 30, .side = 8}};
  }
  // Generates the images of each class from number `shift` on, as an unsorted
  // source has them.
  static ImageScores::Generate Copies(uint64_t shift, int64_t extra = 0) {
    std::map<int32_t, uint64_t> next = {{0, shift}, {1, shift + 1}};
    return [=](int64_t /*first*/, std::span<const int32_t> labels) mutable {
      std::vector<uint8_t> rgb;
      for (const int32_t label : labels) {
        const auto image =
            Noise(1, 8, std::exchange(next[label], next[label] + 2),
                  std::min<int64_t>(label * 128 + extra, 255));
        rgb.insert(rgb.end(), image.begin(), image.end());
      }
      return rgb;
    };
  }
  static double Fid(ImageScores&& scores,
                    const ImageScores::Generate& generate) {
    return scores.Score(7, generate).at(0).second;
  }

  Files files_;
};

TEST_F(ImageScoresTest, TellsLikeFromUnlike) {
  EXPECT_NEAR(Fid(Make(30), Copies(0)), 0.0, 1e-4);
  const double other = Fid(Make(30), Copies(1000));
  const double brighter = Fid(Make(30), Copies(1000, 60));
  EXPECT_GT(other, 0.0);
  EXPECT_GT(brighter, 2.0 * other);
}

// A folder is read class by class; the first 30 of 300 images, in their order,
// are all dark.
TEST_F(ImageScoresTest, DoNotDependOnTheOrderOfFiles) {
  ImageScores scores(
      files_.Load(),
      std::make_shared<NoiseSource>(300, /*unreadable=*/-1, /*is_sorted=*/true),
      {.num_images = 30, .side = 8});
  std::vector<int32_t> all;
  scores.Score(7, [&](int64_t /*first*/, std::span<const int32_t> labels) {
    all.insert(all.end(), labels.begin(), labels.end());
    return Noise(static_cast<int64_t>(labels.size()), 8, /*seed=*/1);
  });
  ASSERT_EQ(all.size(), 30U);
  // 15 in the mean, within 5 standard deviations of 2.7
  EXPECT_NEAR(static_cast<double>(std::ranges::count(all, 1)), 15.0, 13.7);
  EXPECT_FALSE(std::ranges::is_sorted(all));
}

TEST_F(ImageScoresTest, LeavesOutWhatCannotBeRead) {
  const auto scores = Make(25, /*unreadable=*/3).Score(7, Copies(0));
  ASSERT_EQ(scores.size(), 3U);
  EXPECT_EQ(scores[1].first, "evaluation_inception_score");
  EXPECT_GE(scores[1].second, 1.0);
  EXPECT_EQ(scores[2].second, 25.0);
  EXPECT_NE(MessageOf<IoError>([&] {
              Make(2, /*unreadable=*/0).Score(7, Copies(0));
            }).find("1 of 2 can be read"),
            std::string::npos);
}

TEST_F(ImageScoresTest, WithoutAnExtractorOnlyGenerates) {
  int64_t count = 0;
  EXPECT_TRUE(Make(30, -1, /*has_extractor=*/false)
                  .Score(7,
                         [&](int64_t, std::span<const int32_t> labels) {
                           count += static_cast<int64_t>(labels.size());
                           return std::vector<uint8_t>(labels.size() * 8 * 8 *
                                                       3);
                         })
                  .empty());
  EXPECT_EQ(count, 30);
}

// Would catch a run that is killed because it reads the training images for
// minutes.
TEST_F(ImageScoresTest, GivesUpReadingTheSourceWhereTheRunStops) {
  ImageScores scores = Make(30);
  std::vector<size_t> sizes;
  const auto generate = [&](int64_t /*first*/,
                            std::span<const int32_t> labels) {
    sizes.push_back(labels.size());
    return Noise(static_cast<int64_t>(labels.size()), 8, /*seed=*/1);
  };
  int num_calls = 0;
  EXPECT_TRUE(
      scores.Score(7, generate, [&] { return ++num_calls >= 3; }).empty());
  EXPECT_EQ(num_calls, 3);
  // the other processes learn of it
  EXPECT_EQ(sizes, std::vector<size_t>{0});
  // the next evaluation reads all images
  EXPECT_NEAR(scores.Score(7, Copies(0)).at(0).second, 0.0, 1e-4);
}

// Processes without the extractor wait in their first call: would catch that
// they wait until all images are read.
TEST_F(ImageScoresTest, ReadsTheSourceBetweenTheCalls) {
  ImageScores scores = Make(30, /*unreadable=*/3);
  int num_questions = 0;
  std::vector<int> asked;
  const auto generate = [&](int64_t /*first*/,
                            std::span<const int32_t> labels) {
    asked.push_back(std::exchange(num_questions, 0));
    return Noise(static_cast<int64_t>(labels.size()), 8, /*seed=*/1);
  };
  const auto count = [&] { return ++num_questions < 0; };
  EXPECT_FALSE(scores.Score(7, generate, count).empty());
  // one before each image of the source, 30 in all, and one before each call
  EXPECT_EQ(std::accumulate(asked.begin(), asked.end(), 0), 30 + 5);
  for (const int number : asked) EXPECT_LE(number, 7 + 2);
}

// An SN-GAN that is evaluated.
class SnganEvaluationTest : public ImageScoresTest {
 protected:
  SnganEvaluationTest() {
    config_.num_classes = 2;
    config_.generator_channels = config_.discriminator_channels = 4;
    config_.average_decay = 0.9;
    config_.evaluation_features = files_.weights();
    config_.num_evaluation_images = 70;
    config_.evaluation_interval_steps = 2;
  }
  SnganWorkload Make(const replicator::Strategy& strategy, int replicas,
                     int accumulation_steps = 1) const {
    return {
        config_,
        /*batch_size=*/4,
        graph::Precision::kF32,
        /*seed=*/1,
        replicator::MakeReplicator({.strategy = &strategy,
                                    .replicas = replicas,
                                    .backend = "cpu",
                                    .accumulation_steps = accumulation_steps},
                                   /*seed=*/1),
        {.config = {}, .open = [](data::Split split) {
           return split == data::Split::kTrain
                      ? std::make_shared<NoiseSource>(100, -1)
                      : nullptr;
         }}};
  }

  models::sngan::SnganConfig config_;
};

TEST_F(SnganEvaluationTest, ComesByItsInterval) {
  std::map<std::string, double> last;
  for (const auto& [replicas, accumulation_steps] :
       {std::pair{1, 2}, std::pair{1, 1}, std::pair{2, 1}}) {
    SnganWorkload workload = Make(replicas > 1 ? replicator::Strategy::kInGraph
                                               : replicator::Strategy::kSingle,
                                  replicas, accumulation_steps);
    int num_calls = 0;
    workload.SetShouldStop([&] { return ++num_calls >= 2; });
    EXPECT_TRUE(workload.Evaluate().empty());
    EXPECT_EQ(num_calls, 2);
    workload.SetShouldStop([] { return false; });
    for (int i = 0; i < 2; ++i) {
      EXPECT_LE(workload.Scalars().size(), 1U);
      ASSERT_EQ(workload.Step(Clock::Real().Now() + std::chrono::minutes(1)),
                NextResult::kOk);
    }
    std::map<std::string, double> scalars;
    for (const auto& [name, value] : workload.Scalars()) scalars[name] = value;
    // a run that stops gives up its evaluation
    num_calls = 0;
    workload.SetShouldStop([&] { return ++num_calls >= 2; });
    EXPECT_TRUE(workload.Evaluate().empty());
    EXPECT_EQ(num_calls, 2);
    EXPECT_GT(scalars.at("evaluation_fid"), 0.0);
    EXPECT_EQ(scalars.at("evaluation_images"), 70.0);
    if (replicas == 2) {
      EXPECT_NEAR(scalars.at("evaluation_fid"), last.at("evaluation_fid"),
                  0.01 * last.at("evaluation_fid"));
    }
    last = scalars;
  }
}

// An export makes no evaluation: the generator does not depend on the features.
TEST_F(SnganEvaluationTest, AnExportDoesNotNeedTheFeatures) {
  config_.evaluation_features = "/no/such/file";
  data::ImageInput images;
  images.is_read = false;
  SnganWorkload workload(
      config_, /*batch_size=*/4, graph::Precision::kF32, /*seed=*/1,
      replicator::MakeReplicator({.backend = "cpu"}, /*seed=*/1), images);
  EXPECT_FALSE(workload.ModelVariables().empty());
}

// Replicas that do not wait for each other: would catch that each of them makes
// the images of a batch, and the next batch is the first one again.
TEST_F(SnganEvaluationTest, HasEachImageOnceWithHogwild) {
  config_.evaluation_interval_steps = 0;
  const auto expected = Make(replicator::Strategy::kSingle, 1).Evaluate();
  ASSERT_EQ(expected.size(), 3U);
  SnganWorkload hogwild = Make(replicator::Strategy::kHogwild, 3);
  EXPECT_EQ(hogwild.Evaluate(), expected);
  EXPECT_EQ(hogwild.Evaluate(), expected);
}

// Would catch an interval that is looked for only where a step ends at its
// multiple: three replicas take several batches in a step.
TEST_F(SnganEvaluationTest, IsNotMissedByHogwild) {
  config_.evaluation_interval_steps = 5;
  SnganWorkload workload = Make(replicator::Strategy::kHogwild, 3);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(workload.Step(Clock::Real().Now() + std::chrono::minutes(1)),
              NextResult::kOk);
  }
  EXPECT_GT(workload.Scalars().size(), 2U);
}

}  // namespace
}  // namespace replicant::learner
