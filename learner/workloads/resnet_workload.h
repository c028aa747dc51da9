#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "learner/workloads/image_workload.h"
#include "models/resnet/config.h"

namespace replicant::learner {

// Trains ResNet-50 to classify images, by the update of resnet50/update.h.
class ResNetWorkload : public ImageWorkload {
 public:
  // `batch_size` is that of all replicas. Throws what ImageWorkload and
  // Replicator::Build() throw.
  ResNetWorkload(const models::resnet::ResNetConfig& config, int64_t batch_size,
                 graph::Precision precision, uint64_t seed,
                 std::unique_ptr<replicator::Replicator> replicator);

  NextResult Step(Clock::TimePoint deadline) override {
    return step_->Run(deadline);
  }
  int64_t NumNewSteps() const override { return step_->num_steps(); }
  // loss and accuracy, of the batch.
  std::vector<std::pair<std::string, double>> Scalars() const override;

 private:
  std::unique_ptr<replicator::Step> step_;
};

}  // namespace replicant::learner
