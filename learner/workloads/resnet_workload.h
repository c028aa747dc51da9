#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "learner/data/image_pipeline.h"
#include "learner/workloads/image_workload.h"
#include "models/resnet/config.h"

namespace replicant::learner {

// Trains a residual network to classify images, with the update of
// models/resnet/update.h, and evaluates it every evaluation_interval_steps on
// each evaluation image once, over all replicas.
class ResNetWorkload : public ImageWorkload {
 public:
  // `batch_size` counts the rows of all replicas. Throws what ImageWorkload and
  // Replicator::Build() throw, and ConfigError for an evaluation interval
  // without images, or with replicas that do not step together.
  ResNetWorkload(const models::resnet::ResNetConfig& config, int64_t batch_size,
                 graph::Precision precision, uint64_t seed,
                 std::unique_ptr<replicator::Replicator> replicator,
                 const data::ImageInput& images = {});

  NextResult Step(Clock::TimePoint deadline) override;
  int64_t NumNewSteps() const override { return step_->num_steps(); }
  // loss and accuracy of the batch, and the scores of the last evaluation.
  std::vector<std::pair<std::string, double>> Scalars() const override;
  // evaluation_accuracy, evaluation_top5_accuracy, evaluation_loss and the
  // image count evaluation_images; empty without evaluation images, and for an
  // evaluation that was stopped.
  std::vector<std::pair<std::string, double>> Evaluate() override;
  // The network's variables, or their averages if there are any.
  std::vector<std::string> ModelVariables() override;
  // "image", u8 [B, side, side, 3], to "logits" [B, classes].
  std::vector<std::pair<std::string, graph::Output>> BuildModel(
      graph::Graph& graph, int64_t batch_size) const override;
  std::string ModelDescription() const override;
  // Reads initial_variables. Throws IoError if they cannot be used.
  void Begin() override;

 private:
  void BuildEvaluation(const models::resnet::ResNetConfig& config,
                       int64_t batch_size, const data::ImageInput& images);
  std::vector<std::string> NetworkVariables();

  const models::resnet::ResNetConfig config_;
  std::unique_ptr<replicator::Step> step_;
  // null without evaluation images
  std::unique_ptr<replicator::Input> evaluation_input_;
  std::unique_ptr<replicator::Step> evaluation_step_;
  data::ImagePipeline* evaluation_images_ = nullptr;
  std::vector<std::pair<std::string, double>> evaluation_;
};

}  // namespace replicant::learner
