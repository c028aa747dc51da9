#include "learner/workloads/resnet_workload.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "learner/workloads/image_steps.h"
#include "learner/workloads/model_file.h"
#include "models/features/config.h"
#include "models/resnet/update.h"

namespace replicant::learner {
namespace {

// Longest wait for images of an evaluation before the replicas ask again.
constexpr auto kPatience = std::chrono::seconds(1);

}  // namespace

ResNetWorkload::ResNetWorkload(
    const models::resnet::ResNetConfig& config, int64_t batch_size,
    graph::Precision precision, uint64_t seed,
    std::unique_ptr<replicator::Replicator> replicator,
    const data::ImageInput& images)
    : ImageWorkload(std::move(replicator),
                    {.batch_size = batch_size,
                     .side = config.image_size,
                     .num_classes = config.num_classes,
                     .seed = seed,
                     .input = images,
                     .counters = {"step"}},
                    precision),
      config_(config) {
  step_ = BuildStep({[&](replicator::ReplicaContext& replica,
                         const replicator::Inputs& inputs) {
                      return BuildResNetStep(replica, inputs, config);
                    }},
                    "step");
  BuildEvaluation(config, batch_size, images);
}

void ResNetWorkload::BuildEvaluation(const models::resnet::ResNetConfig& config,
                                     int64_t batch_size,
                                     const data::ImageInput& images) {
  const auto source =
      images.open ? images.open(data::Split::kEvaluation) : nullptr;
  if (source == nullptr) {
    if (images.is_read && config.evaluation_interval_steps > 0) {
      throw ConfigError(fmt::format(
          "resnet50.evaluation_interval_steps: {}, but images.evaluation names "
          "no images; hint: set images.evaluation (with images.source rendered "
          "images.num_evaluation); allowed without: 0",
          config.evaluation_interval_steps));
    }
    return;
  }
  bool is_together = true;
  evaluation_input_ =
      replicator().MakeInput([&](const replicator::InputContext& context) {
        is_together = context.num_groups == 1;
        auto pipeline = std::make_unique<data::ImagePipeline>(
            data::ImagePipelineOptions{
                .source = source,
                .batch_size = batch_size,
                .side = config.image_size,
                .num_classes = config.num_classes,
                .is_training = false,
                .evaluation_crop = images.config.evaluation_crop,
                .num_threads = images.config.threads,
                .num_batches_ahead = images.config.batches_ahead},
            context);
        evaluation_images_ = pipeline.get();
        return pipeline;
      });
  if (!is_together) {
    if (config_.evaluation_interval_steps > 0) {
      throw ConfigError(
          "resnet50.evaluation_interval_steps: needs a "
          "learner.replication.strategy whose replicas make their steps "
          "together; allowed here: 0");
    }
    evaluation_images_ = nullptr;
    return;
  }
  // products in f32, whatever the training's precision
  evaluation_step_ = replicator().Build(*evaluation_input_,
                                        [&](replicator::ReplicaContext& replica,
                                            const replicator::Inputs& inputs) {
                                          return BuildResNetEvaluation(
                                              replica, inputs, config);
                                        },
                                        {.name = "evaluation"});
}

void ResNetWorkload::Begin() {
  if (config_.initial_variables.empty()) return;
  if (const std::string why = WhyMissing(config_.initial_variables);
      !why.empty()) {
    throw ConfigError(fmt::format("resnet50.initial_variables: {}: {}", why,
                                  config_.initial_variables));
  }
  // the averages, too
  std::vector<std::string> names = NetworkVariables();
  if (!config_.has_initial_head) {
    std::erase_if(names, [](const std::string& name) {
      return name.starts_with("fc/") || name.starts_with("average/fc/");
    });
  }
  ReadModel(config_.initial_variables, names, &variables());
}

std::vector<std::pair<std::string, graph::Output>> ResNetWorkload::BuildModel(
    graph::Graph& graph, int64_t batch_size) const {
  const graph::Output image = graph.Input(
      "image", DType::kU8,
      Shape({batch_size, config_.image_size, config_.image_size, 3}));
  return {{"logits",
           models::resnet::BuildLogits(graph, config_, DType::kF32, image)}};
}

std::string ResNetWorkload::ModelDescription() const {
  return models::features::DescriptionOf(config_);
}

std::vector<std::string> ResNetWorkload::NetworkVariables() {
  std::vector<std::string> names;
  for (const auto& [name, variable] : variables().variables()) {
    if (!name.starts_with("optimizer/") && name != "step") {
      names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> ResNetWorkload::ModelVariables() {
  return AveragesIn(NetworkVariables());
}

NextResult ResNetWorkload::Step(Clock::TimePoint deadline) {
  NextResult result = AlignInputs(deadline);
  if (result != NextResult::kOk) return result;
  result = step_->Run(deadline);
  // all processes have taken as many batches
  if (result == NextResult::kOk && evaluation_step_ &&
      config_.evaluation_interval_steps > 0 &&
      num_batches() % config_.evaluation_interval_steps == 0) {
    Evaluate();
  }
  return result;
}

std::vector<std::pair<std::string, double>> ResNetWorkload::Evaluate() {
  if (!evaluation_step_) return {};
  constexpr std::array<const char*, 4> kNames = {"loss", "top1", "top5",
                                                 "weight"};
  std::array<double, kNames.size()> sums = {};
  evaluation_images_->set_position(0);
  const int64_t num_batches = evaluation_images_->num_batches();
  for (int64_t i = 0; i < num_batches;) {
    // no further images end the evaluation of all processes
    if (should_stop()) evaluation_images_->set_position(num_batches);
    // the processes agree on the result
    const NextResult result =
        evaluation_step_->Run(Clock::Real().Now() + kPatience);
    if (result == NextResult::kEnd) return {};
    if (result == NextResult::kTimeout) continue;
    ++i;
    for (size_t k = 0; k < kNames.size(); ++k) {
      sums[k] += evaluation_step_->value(kNames[k]).Span<float>()[0];
    }
  }
  const double weight = sums[3];
  if (weight == 0.0) {
    throw IoError("images.evaluation: no image of the evaluation can be read");
  }
  evaluation_ = {{"evaluation_accuracy", sums[1] / weight},
                 {"evaluation_top5_accuracy", sums[2] / weight},
                 {"evaluation_loss", sums[0] / weight},
                 {"evaluation_images", weight}};
  return evaluation_;
}

std::vector<std::pair<std::string, double>> ResNetWorkload::Scalars() const {
  std::vector<std::pair<std::string, double>> scalars;
  for (const char* name : {"loss", "accuracy"}) {
    scalars.emplace_back(name, step_->value(name).Span<float>()[0]);
  }
  scalars.insert(scalars.end(), evaluation_.begin(), evaluation_.end());
  return scalars;
}

}  // namespace replicant::learner
