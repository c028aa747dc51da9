#include "learner/workloads/sngan_workload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "learner/workloads/synthetic_images.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/small_image_models.h"
#include "tests/support/graph_runner.h"
#include "tools/probe/sngan_step.h"

namespace replicant::learner {
namespace {

using testing::ToDoubles;

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

}  // namespace
}  // namespace replicant::learner
