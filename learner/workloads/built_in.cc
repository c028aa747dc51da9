#include "learner/workloads/built_in.h"

#include <memory>
#include <utility>

#include "agents/d4pg/agent.h"
#include "agents/d4pg/config.h"
#include "learner/workloads/agent/agent_workload.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"

namespace replicant::learner {
namespace {

WorkloadDef D4pg() {
  WorkloadDef workload = DefineAgent<agents::d4pg::D4pgConfig>(
      "d4pg", "the D4PG agent", &agents::d4pg::MakeAgent);
  workload.section = "agent";
  return workload;
}

WorkloadDef ResNet50() {
  WorkloadDef workload = DefineWorkload<models::resnet::ResNetConfig>(
      "resnet50", "the image classifier (learner.workload: resnet50)",
      [](const models::resnet::ResNetConfig& config,
         WorkloadArguments arguments) {
        return std::make_unique<ResNetWorkload>(
            config, arguments.learner.batch_size, arguments.learner.precision,
            arguments.seed, std::move(arguments.replicator), arguments.images);
      });
  workload.path_keys = {"initial_variables"};
  workload.images_of = [](const std::any& section) {
    const auto& config =
        std::any_cast<const models::resnet::ResNetConfig&>(section);
    return ImageNeeds{.side = config.image_size,
                      .num_classes = config.num_classes};
  };
  return workload;
}

WorkloadDef Sngan() {
  WorkloadDef workload = DefineWorkload<models::sngan::SnganConfig>(
      "sngan", "the image generator (learner.workload: sngan)",
      [](const models::sngan::SnganConfig& config,
         WorkloadArguments arguments) {
        return std::make_unique<SnganWorkload>(
            config, arguments.learner.batch_size, arguments.learner.precision,
            arguments.seed, std::move(arguments.replicator), arguments.images);
      });
  workload.path_keys = {"evaluation_features", "evaluation_network"};
  workload.images_of = [](const std::any& section) {
    const auto& config =
        std::any_cast<const models::sngan::SnganConfig&>(section);
    return ImageNeeds{.side = config.side(), .num_classes = config.num_classes};
  };
  return workload;
}

}  // namespace

WorkloadRegistry BuiltInWorkloads() {
  WorkloadRegistry registry;
  registry.Add(D4pg());
  registry.Add(ResNet50());
  registry.Add(Sngan());
  return registry;
}

}  // namespace replicant::learner
