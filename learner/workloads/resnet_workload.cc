#include "learner/workloads/resnet_workload.h"

#include <utility>

#include "learner/workloads/image_steps.h"

namespace replicant::learner {

ResNetWorkload::ResNetWorkload(
    const models::resnet::ResNetConfig& config, int64_t batch_size,
    graph::Precision precision, uint64_t seed,
    std::unique_ptr<replicator::Replicator> replicator)
    : ImageWorkload(std::move(replicator),
                    {.batch_size = batch_size,
                     .side = config.image_size,
                     .num_classes = config.num_classes,
                     .seed = seed},
                    precision) {
  step_ = BuildStep([&](replicator::ReplicaContext& replica,
                        const replicator::Inputs& inputs) {
    return BuildResNetStep(replica, inputs, config);
  });
}

std::vector<std::pair<std::string, double>> ResNetWorkload::Scalars() const {
  std::vector<std::pair<std::string, double>> scalars;
  for (const char* name : {"loss", "accuracy"}) {
    scalars.emplace_back(name, step_->value(name).Span<float>()[0]);
  }
  return scalars;
}

}  // namespace replicant::learner
