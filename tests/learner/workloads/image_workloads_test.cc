#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numbers>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/thread.h"
#include "engine/kernels/backend.h"
#include "engine/nn/single_replica.h"
#include "engine/runtime/executor.h"
#include "learner/learner.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "learner/workloads/synthetic_images.h"
#include "models/resnet/update.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"
#include "tools/probe/sngan_step.h"

namespace replicant::learner {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::ToDoubles;

// One batch of a pipeline.
struct ImageBatch {
  explicit ImageBatch(const SyntheticImages& images)
      : image(DType::kU8, images.specs()[0].shape),
        label(DType::kI32, images.specs()[1].shape) {}

  void Fill(SyntheticImages& images) {
    const std::vector<MutableTensorView> views = {image.mutable_view(),
                                                  label.mutable_view()};
    ASSERT_EQ(images.Next({}, views), NextResult::kOk);
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

std::unique_ptr<replicator::Replicator> MakeReplicator(uint64_t seed) {
  return replicator::MakeReplicator({.backend = "cpu"}, seed);
}

ResNetWorkload MakeResNet(const models::resnet::ResNetConfig& config,
                          graph::Precision precision = graph::Precision::kF32) {
  return {config, /*batch_size=*/16, precision, /*seed=*/1, MakeReplicator(1)};
}

SnganWorkload MakeSngan(const models::sngan::SnganConfig& config) {
  // a seed whose first loss is not zero by chance
  return {config, /*batch_size=*/4, graph::Precision::kF32, /*seed=*/2,
          MakeReplicator(2)};
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

models::resnet::ResNetConfig SmallResNet() {
  models::resnet::ResNetConfig config;
  config.depth = models::resnet::Depth::k18;
  config.stem = models::resnet::Stem::kSmall;
  config.width = 4;
  config.image_size = 16;
  config.num_classes = 3;
  config.optimizer.learning_rate = 0.05;
  return config;
}

class ResNetPrecisionTest : public ::testing::TestWithParam<graph::Precision> {
};

INSTANTIATE_TEST_SUITE_P(Both, ResNetPrecisionTest,
                         ::testing::Values(graph::Precision::kF32,
                                           graph::Precision::kBF16));

TEST_P(ResNetPrecisionTest, LearnsToTellWavesApart) {
  ResNetWorkload workload = MakeResNet(SmallResNet(), GetParam());
  double first_loss = 0.0;
  double accuracy = 0.0;
  constexpr int kSteps = 60;
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
    const auto scalars = workload.Scalars();
    if (i == 0) first_loss = scalars[0].second;
    // of the last ten batches, 160 images
    if (i >= kSteps - 10) accuracy += scalars[1].second / 10.0;
  }
  // chance is 1/3
  EXPECT_GT(accuracy, 0.8);
  EXPECT_GT(first_loss, 0.5);
}

TEST(ResNetWorkloadTest, GoesOnFromItsState) {
  ResNetWorkload workload = MakeResNet(SmallResNet());
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.State().at("batches"), "1");
  ResNetWorkload resumed = MakeResNet(SmallResNet());
  resumed.Restore(workload.State());
  for (const auto& [name, variable] : workload.variables().variables()) {
    resumed.variables().Set(name, workload.variables().Get(name).view());
  }
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.Scalars(), resumed.Scalars());
  EXPECT_EQ(MessageOf([&] { resumed.Restore({}); }), "checkpoint: no batches");
  EXPECT_EQ(MessageOf([&] {
              resumed.Restore({{"batches", "-1"}});
            }),
            "checkpoint: batches: want a whole number >= 0, got '-1'");
}

TEST(ResNetWorkloadTest, GoesOnInTheOtherPrecision) {
  ResNetWorkload workload = MakeResNet(SmallResNet());
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  ResNetWorkload resumed = MakeResNet(SmallResNet(), graph::Precision::kBF16);
  resumed.Restore(workload.State());
  for (const auto& [name, variable] : workload.variables().variables()) {
    EXPECT_NE(variable.spec.dtype, DType::kBF16) << name;
    resumed.variables().Set(name, workload.variables().Get(name).view());
  }
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  const double loss = workload.Scalars()[0].second;
  const double resumed_loss = resumed.Scalars()[0].second;
  // a step of bf16 is 2^-8; some twenty layers round one after the other
  EXPECT_NEAR(resumed_loss, loss, 20 * 0x1p-8 * loss);
  EXPECT_NE(resumed_loss, loss);
}

// The last norm of a block starts with a scale of zero, the others with one.
TEST(ResNetTest, BlocksStartAsTheIdentityIfAsked) {
  for (const bool has_zero_gamma : {true, false}) {
    GraphRunner runner;
    models::resnet::ResNetConfig config = SmallResNet();
    config.depth = models::resnet::Depth::k50;
    config.has_zero_gamma = has_zero_gamma;
    nn::SingleReplica replica(runner.graph());
    const models::resnet::ResNet network(replica, config);
    runner.store().Declare(runner.graph());
    const auto first = [&](const std::string& name) {
      return ToDoubles(runner.store().Get(name).view())[0];
    };
    EXPECT_EQ(first("layer2/1/bn3/weight"), has_zero_gamma ? 0.0 : 1.0);
    EXPECT_EQ(first("layer2/1/bn2/weight"), 1.0);
    EXPECT_EQ(first("layer2/0/downsample/1/weight"), 1.0);
  }
}

TEST(ResNetTest, LearningRateWarmsUpAndFallsInSteps) {
  const models::resnet::SgdConfig config{
      .learning_rate = 0.8, .warm_up_steps = 4, .decay_steps = {6, 8}};
  const std::map<int, double> expected = {{0, 0.2}, {1, 0.4},  {3, 0.8},
                                          {5, 0.8}, {6, 0.08}, {8, 0.008}};
  for (const auto& [step, rate] : expected) {
    GraphRunner runner;
    const graph::Output value = runner.graph().Scalar(step, DType::kI64);
    EXPECT_NEAR(runner.Eval(models::resnet::LearningRate(config, value))[0],
                rate, 1e-6)
        << step;
  }
}

TEST(ResNetTest, LearningRateFallsByACosine) {
  const models::resnet::SgdConfig config{
      .learning_rate = 0.8,
      .warm_up_steps = 2,
      .schedule = models::resnet::Schedule::kCosine,
      .total_steps = 12};
  const auto cosine = [](double step) {
    return 0.4 * (1.0 + std::cos(std::numbers::pi * step / 12.0));
  };
  for (const int step : {0, 1, 3, 6, 11, 12, 20}) {
    GraphRunner runner;
    const graph::Output value = runner.graph().Scalar(step, DType::kI64);
    EXPECT_NEAR(runner.Eval(models::resnet::LearningRate(config, value))[0],
                cosine(std::min(step, 12)) * (step == 0 ? 0.5 : 1.0), 1e-6)
        << step;
  }
}

// One step from rest moves a weight by the rate times the trust ratio times the
// decayed gradient, whatever the loss is scaled by; a bias moves as by SGD.
TEST(ResNetTest, LarsMovesEachWeightByAShareOfItsNorm) {
  models::resnet::ResNetConfig config = SmallResNet();
  config.optimizer = {.kind = models::resnet::OptimizerKind::kLars,
                      .trust_coefficient = 0.01,
                      .learning_rate = 0.5,
                      .weight_decay = 0.0};
  ResNetWorkload workload = MakeResNet(config);
  std::map<std::string, HostTensor> before;
  for (const auto& [name, variable] : workload.variables().variables()) {
    if (variable.spec.is_trainable) {
      before.emplace(name, workload.variables().Get(name));
    }
  }
  ASSERT_EQ(workload.Step(Clock::Real().Now() + std::chrono::minutes(1)),
            NextResult::kOk);
  int num_weights = 0;
  for (const auto& [name, old] : before) {
    if (old.shape().rank() < 2) continue;
    ++num_weights;
    const HostTensor now = workload.variables().Get(name);
    const std::vector<double> a = ToDoubles(old.view()),
                              b = ToDoubles(now.view());
    double size = 0.0, moved = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      size += a[i] * a[i];
      moved += (b[i] - a[i]) * (b[i] - a[i]);
    }
    // 0 where a zero gamma cuts the gradient off
    if (moved == 0.0) continue;
    EXPECT_NEAR(std::sqrt(moved / size), 0.5 * 0.01, 1e-5) << name;
  }
  EXPECT_GT(num_weights, 10);
}

models::sngan::SnganConfig SmallSngan() {
  models::sngan::SnganConfig config;
  config.num_classes = 3;
  config.latent_size = 8;
  config.generator_channels = 4;
  config.discriminator_channels = 4;
  config.discriminator_steps = 2;
  return config;
}

// Variables by name, of one network.
std::map<std::string, std::vector<double>> WeightsOf(
    SnganWorkload& workload, const std::string& prefix) {
  std::map<std::string, std::vector<double>> weights;
  for (const auto& [name, variable] : workload.variables().variables()) {
    if (name.starts_with(prefix) && variable.spec.is_trainable) {
      weights[name] = ToDoubles(workload.variables().Get(name).view());
    }
  }
  return weights;
}

TEST(SnganWorkloadTest, UpdatesTheGeneratorAfterTheDiscriminator) {
  SnganWorkload workload = MakeSngan(SmallSngan());
  auto generator = WeightsOf(workload, "generator/");
  auto discriminator = WeightsOf(workload, "discriminator/");
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
    const bool is_generator = i % 3 == 2;
    const auto new_generator = WeightsOf(workload, "generator/");
    const auto new_discriminator = WeightsOf(workload, "discriminator/");
    EXPECT_EQ(generator != new_generator, is_generator) << i;
    EXPECT_EQ(discriminator != new_discriminator, !is_generator) << i;
    generator = new_generator;
    discriminator = new_discriminator;
    EXPECT_EQ(workload.Scalars().size(), i < 2 ? 1u : 2u);
    for (const auto& [name, value] : workload.Scalars()) {
      EXPECT_TRUE(std::isfinite(value)) << name;
    }
  }
}

// The network that each of the next steps changes: d, g, b for both, - for
// none.
std::string UpdatesOf(SnganWorkload& workload, int num_steps) {
  std::string updates;
  for (int i = 0; i < num_steps; ++i) {
    const auto generator = WeightsOf(workload, "generator/");
    const auto discriminator = WeightsOf(workload, "discriminator/");
    EXPECT_EQ(workload.Step({}), NextResult::kOk);
    const bool has_generator = generator != WeightsOf(workload, "generator/");
    const bool has_discriminator =
        discriminator != WeightsOf(workload, "discriminator/");
    updates += has_generator && has_discriminator ? 'b'
               : has_generator                    ? 'g'
               : has_discriminator                ? 'd'
                                                  : '-';
  }
  return updates;
}

TEST(SnganWorkloadTest, UpdatesOfSeveralBatchesAreOfOneNetwork) {
  models::sngan::SnganConfig config = SmallSngan();
  config.discriminator_steps = 1;
  SnganWorkload workload(
      config, /*batch_size=*/4, graph::Precision::kF32, /*seed=*/2,
      replicator::MakeReplicator({.accumulation_steps = 2}, /*seed=*/2));
  EXPECT_EQ(UpdatesOf(workload, 8), "-d-g-d-g");
}

TEST(SnganWorkloadTest, GoesOnInTheMiddleOfACycle) {
  SnganWorkload workload = MakeSngan(SmallSngan());
  for (int i = 0; i < 2; ++i) ASSERT_EQ(workload.Step({}), NextResult::kOk);
  SnganWorkload resumed = MakeSngan(SmallSngan());
  resumed.Restore(workload.State());
  for (const auto& [name, variable] : workload.variables().variables()) {
    resumed.variables().Set(name, workload.variables().Get(name).view());
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
    ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  }
  EXPECT_EQ(WeightsOf(workload, "generator/"),
            WeightsOf(resumed, "generator/"));
  EXPECT_EQ(WeightsOf(workload, "discriminator/"),
            WeightsOf(resumed, "discriminator/"));
}

// Would catch an update that continues across the other network's after a
// resume.
TEST(SnganWorkloadTest, AResumedRunBeginsAnUpdateOfSeveralBatchesAnew) {
  const auto make = [] {
    return SnganWorkload(
        SmallSngan(), /*batch_size=*/4, graph::Precision::kF32, /*seed=*/2,
        replicator::MakeReplicator({.accumulation_steps = 2}, /*seed=*/2));
  };
  SnganWorkload workload = make();
  // one and a half of two updates of the discriminator
  for (int i = 0; i < 3; ++i) ASSERT_EQ(workload.Step({}), NextResult::kOk);
  SnganWorkload resumed = make();
  resumed.Restore(workload.State());
  EXPECT_EQ(resumed.State().at("batches"), "3");
  EXPECT_EQ(UpdatesOf(resumed, 6), "-d-g-d");
}

TEST(SnganWorkloadTest, DrawsSamplesBetweenTheBatchesOfAnUpdate) {
  models::sngan::SnganConfig config = SmallSngan();
  config.sample_interval_steps = 3;
  SnganWorkload workload(
      config, /*batch_size=*/4, graph::Precision::kF32, /*seed=*/2,
      replicator::MakeReplicator({.accumulation_steps = 2}, /*seed=*/2));
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
    bool has_samples = false;
    for (const Picture& picture : workload.TakePictures()) {
      has_samples = has_samples || picture.name == "samples";
    }
    EXPECT_EQ(has_samples, i % 3 == 2) << i;
  }
}

// Both networks learn in every step, under every strategy of one process.
TEST(SnganWorkloadTest, MakesBothUpdatesInOneStep) {
  models::sngan::SnganConfig config = SmallSngan();
  config.discriminator_steps = 1;
  config.joint_updates = true;
  using replicator::Strategy;
  std::map<std::string, std::vector<double>> one;
  for (const replicator::ReplicationConfig& replication :
       {replicator::ReplicationConfig{},
        {.strategy = &Strategy::kInGraph, .replicas = 2},
        {.strategy = &Strategy::kHogwild},
        {.strategy = &Strategy::kHogwild, .replicas = 2},
        {.accumulation_steps = 2}}) {
    SCOPED_TRACE(replication.strategy->name);
    SnganWorkload workload(config, /*batch_size=*/4, graph::Precision::kF32,
                           /*seed=*/2,
                           replicator::MakeReplicator(replication, /*seed=*/2));
    const auto generator = WeightsOf(workload, "generator/");
    const auto discriminator = WeightsOf(workload, "discriminator/");
    const int count = replication.accumulation_steps;
    for (int i = 0; i < 3 * count; ++i) {
      ASSERT_EQ(workload.Step({}), NextResult::kOk);
      EXPECT_EQ(workload.Scalars().size(), i + 1 < count ? 1U : 2U);
      if (i == 0) {
        EXPECT_EQ(WeightsOf(workload, "discriminator/") != discriminator,
                  count == 1);
        EXPECT_EQ(WeightsOf(workload, "generator/") != generator, count == 1);
      }
    }
    const auto last = WeightsOf(workload, "generator/");
    EXPECT_NE(last, generator);
    if (one.empty()) one = last;
    if (replication.strategy == &Strategy::kHogwild &&
        replication.replicas == 1) {
      EXPECT_EQ(last, one);
    }
  }
}

class SnganPrecisionTest : public ::testing::TestWithParam<graph::Precision> {};

INSTANTIATE_TEST_SUITE_P(Both, SnganPrecisionTest,
                         ::testing::Values(graph::Precision::kF32,
                                           graph::Precision::kBF16));

// Losses of updates of one network, with the other as the store has it.
std::vector<double> TrainOne(probe::sngan::GraphKind kind,
                             graph::Precision precision,
                             runtime::VariableStore& store) {
  constexpr int64_t kBatch = 16;
  constexpr int kUpdates = 40;
  models::sngan::SnganConfig config = SmallSngan();
  config.generator_channels = 8;
  config.discriminator_channels = 8;
  config.optimizer.learning_rate = 2e-3;
  const probe::StepGraph workload = probe::sngan::BuildStepGraph(
      {.model = config, .batch_size = kBatch, .kind = kind}, DType::kF32);
  runtime::Executor plan(
      *workload.graph,
      {.outputs = {workload.losses[0].output}, .updates = workload.updates},
      store, {.passes = {.precision = precision}});
  const bool is_generator = kind == probe::sngan::GraphKind::kGenerator;
  SyntheticImages images({.batch_size = kBatch,
                          .side = 32,
                          .num_classes = config.num_classes,
                          .seed = 3},
                         {});
  RandomStream random(1, "latent");
  std::vector<double> losses;
  for (int i = 0; i < kUpdates; ++i) {
    if (!is_generator) {
      const std::vector<MutableTensorView> batch = {plan.input("image"),
                                                    plan.input("label")};
      EXPECT_EQ(images.Next({}, batch), NextResult::kOk);
    }
    for (float& z :
         plan.input(is_generator ? "generator_z" : "z").Span<float>()) {
      z = static_cast<float>(random.Normal());
    }
    for (int32_t& label :
         plan.input(is_generator ? "generator_label" : "fake_label")
             .Span<int32_t>()) {
      label = static_cast<int32_t>(random.UniformInt(config.num_classes));
    }
    plan.Run();
    losses.push_back(ToDoubles(plan.output(0))[0]);
  }
  return losses;
}

double MeanOfLastFive(const std::vector<double>& losses) {
  return std::accumulate(losses.end() - 5, losses.end(), 0.0) / 5.0;
}

// A game of two has no loss that falls in the end; one counter advances while
// the other stands still.
TEST_P(SnganPrecisionTest, EachNetworkLearnsAgainstTheOther) {
  const auto backend = kernels::MakeBackend("cpu", {.num_threads = 1});
  runtime::VariableStore store(*backend, /*seed=*/2);
  const std::vector<double> discriminator =
      TrainOne(probe::sngan::GraphKind::kDiscriminator, GetParam(), store);
  // who cannot tell real from made has 2
  EXPECT_GT(discriminator.front(), 1.5);
  EXPECT_LT(MeanOfLastFive(discriminator), 1.0);
  const std::vector<double> generator =
      TrainOne(probe::sngan::GraphKind::kGenerator, GetParam(), store);
  EXPECT_LT(MeanOfLastFive(generator), generator.front() - 0.5);
}

// The schedule counts updates of the generator: with two updates of the
// discriminator for one, the third of these has a learning rate of 0.
TEST(SnganWorkloadTest, LearningRatesOfBothFallTogether) {
  models::sngan::SnganConfig config = SmallSngan();
  config.optimizer.decay_end = 1;
  SnganWorkload workload = MakeSngan(config);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(workload.Step({}), NextResult::kOk);
  const auto generator = WeightsOf(workload, "generator/");
  const auto discriminator = WeightsOf(workload, "discriminator/");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_EQ(generator, WeightsOf(workload, "generator/"));
  EXPECT_EQ(discriminator, WeightsOf(workload, "discriminator/"));
}

TEST(SnganWorkloadTest, DiscriminatorHasALearningRateOfItsOwn) {
  models::sngan::SnganConfig config = SmallSngan();
  config.optimizer.discriminator_learning_rate = 0.0;
  SnganWorkload workload = MakeSngan(config);
  const auto generator = WeightsOf(workload, "generator/");
  const auto discriminator = WeightsOf(workload, "discriminator/");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_NE(generator, WeightsOf(workload, "generator/"));
  EXPECT_EQ(discriminator, WeightsOf(workload, "discriminator/"));
}

TEST(SnganConfigTest, NetworksAreThoseOfThePapers) {
  using Channels = std::vector<int64_t>;
  models::sngan::SnganConfig config;
  EXPECT_EQ(config.GeneratorChannels(), (Channels{256, 256, 256, 256}));
  EXPECT_EQ(config.DiscriminatorChannels(), (Channels{128, 128, 128, 128}));
  config.image_size = models::sngan::ImageSize::k64;
  EXPECT_EQ(config.GeneratorChannels(), (Channels{1024, 512, 256, 128, 64}));
  EXPECT_EQ(config.DiscriminatorChannels(),
            (Channels{64, 128, 256, 512, 1024}));
  config.image_size = models::sngan::ImageSize::k128;
  config.generator_channels = 2;
  EXPECT_EQ(config.GeneratorChannels(), (Channels{32, 32, 16, 8, 4, 2}));
  EXPECT_EQ(config.DiscriminatorChannels(),
            (Channels{64, 128, 256, 512, 1024, 1024}));
}

// The first worker of a resumed run has its checkpoint; the others know the
// servers' counters alone.
class ImageWorkersTest : public ::testing::Test {
 protected:
  using Make = std::function<std::unique_ptr<ImageWorkload>(
      std::unique_ptr<replicator::Replicator>)>;

  // Restores the first worker to 12 batches, with these counters, and lets all
  // workers take the batches of an update. Returns the batches of their groups
  // then.
  static std::vector<std::string> Resume(
      const replicator::ReplicationConfig& config, const Make& make,
      const std::map<std::string, double>& counters) {
    Thread server("server", [&](const Thread::StopToken& stop) {
      Follow(*make(replicator::MakeReplicator(config, /*seed=*/1,
                                              {.is_server = true})),
             [&] { return stop.IsStopRequested(); });
    });
    std::vector<std::string> batches(static_cast<size_t>(config.num_workers()));
    // processes of a group make their workloads and steps together
    const auto run = [&](int index, std::atomic<int>* num_ready) {
      const auto workload = make(
          replicator::MakeReplicator(config, /*seed=*/1, {.index = index}));
      if (index == 0) {
        workload->Restore({{"batches", "12"}, {"cycle_position", "0"}});
        for (const auto& [name, value] : counters) {
          workload->variables().Set(
              name, testing::Values(DType::kI64, Shape({}), {value}).view());
        }
      }
      // one group after the other
      const int group = index / config.processes_per_group;
      while (*num_ready < group * config.processes_per_group) {
        std::this_thread::yield();
      }
      for (int i = 0; i < config.accumulation_steps; ++i) {
        NextResult result = NextResult::kTimeout;
        while (result == NextResult::kTimeout) {
          result =
              workload->Step(Clock::Real().Now() + std::chrono::seconds(1));
        }
        EXPECT_EQ(result, NextResult::kOk);
      }
      batches[static_cast<size_t>(index)] = workload->State().at("batches");
      ++*num_ready;
      while (*num_ready < config.num_workers()) std::this_thread::yield();
      if (index == 0) {
        workload->Stop();
      } else {
        Follow(*workload, [] { return false; });
      }
    };
    std::atomic<int> num_ready = 0;
    {
      std::vector<std::jthread> others;
      for (int i = 1; i < config.num_workers(); ++i) {
        others.emplace_back([&, i] { run(i, &num_ready); });
      }
      run(0, &num_ready);
    }
    return batches;
  }

  static std::unique_ptr<ImageWorkload> ResNet(
      std::unique_ptr<replicator::Replicator> replicator) {
    return std::make_unique<ResNetWorkload>(SmallResNet(), /*batch_size=*/4,
                                            graph::Precision::kF32, /*seed=*/1,
                                            std::move(replicator));
  }
  static std::unique_ptr<ImageWorkload> Sngan(
      std::unique_ptr<replicator::Replicator> replicator) {
    return std::make_unique<SnganWorkload>(SmallSngan(), /*batch_size=*/4,
                                           graph::Precision::kF32, /*seed=*/1,
                                           std::move(replicator));
  }

  replicator::ServerFolder folder_;
};

TEST_F(ImageWorkersTest, AllGoOnWhereTheRunWas) {
  replicator::ReplicationConfig config = folder_.Config(
      /*num_servers=*/1, /*replicas=*/2, /*staleness=*/100, "cpu");
  // twice what each has taken: the second begins with batch 13 of the run, its
  // seventh, when the first has taken its seventh
  EXPECT_EQ(Resume(config, &ResNet, {{"step", 12}}),
            (std::vector<std::string>{"14", "14"}));
  EXPECT_EQ(Resume(config, &Sngan,
                   {{"discriminator_step", 8}, {"generator_step", 4}}),
            (std::vector<std::string>{"14", "14"}));
  config.accumulation_steps = 2;
  EXPECT_EQ(Resume(config, &ResNet, {{"step", 6}}),
            (std::vector<std::string>{"16", "18"}));
}

// A group's processes have its place from its first process, or its counters.
TEST_F(ImageWorkersTest, GroupsOfProcessesGoOnTogether) {
  replicator::ReplicationConfig config = folder_.Config(
      /*num_servers=*/1, /*replicas=*/4, /*staleness=*/100, "cpu");
  config.replicas_per_group = 2;
  config.processes_per_group = 2;
  config.rendezvous = (folder_.path() / "rendezvous").string();
  EXPECT_EQ(Resume(config, &ResNet, {{"step", 12}}),
            (std::vector<std::string>{"14", "14", "14", "14"}));
}

// Image models on replicas that do not wait for each other: steps of both kinds
// are begun ahead, and a pause brings all of them in.
TEST(HogwildImagesTest, BothModelsTrainAndPause) {
  const replicator::ReplicationConfig hogwild{
      .strategy = &replicator::Strategy::kHogwild, .replicas = 2};
  const auto check = [](Workload& workload,
                        const std::vector<std::string>& counters) {
    int64_t num_steps = 0;
    for (; num_steps < 12; ++num_steps) {
      ASSERT_EQ(workload.Step({}), NextResult::kOk);
    }
    workload.input()->SetPaused(true);
    while (!workload.input()->IsDrained()) {
      if (workload.Step({}) == NextResult::kOk) ++num_steps;
    }
    EXPECT_EQ(workload.State().at("batches"), std::to_string(num_steps));
    int64_t counted = 0;
    for (const std::string& name : counters) {
      counted += workload.variables().Get(name).Span<int64_t>()[0];
    }
    EXPECT_EQ(counted, num_steps);
    for (const auto& [name, value] : workload.Scalars()) {
      EXPECT_TRUE(std::isfinite(value)) << name;
    }
  };
  ResNetWorkload resnet(SmallResNet(), /*batch_size=*/16,
                        graph::Precision::kF32, /*seed=*/1,
                        replicator::MakeReplicator(hogwild, 1));
  check(resnet, {"step"});
  SnganWorkload sngan(SmallSngan(), /*batch_size=*/4, graph::Precision::kF32,
                      /*seed=*/2, replicator::MakeReplicator(hogwild, 2));
  check(sngan, {"discriminator_step", "generator_step"});
}

}  // namespace
}  // namespace replicant::learner
