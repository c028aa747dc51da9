#include "programs/run/make_workload.h"

#include <utility>

#include "learner/data/encoded_images.h"
#include "programs/run/check_run.h"
#include "replicator/inspect/variable_replicator.h"

namespace replicant::programs {
namespace {

// Images for a workload that reads none: one that cannot be read, and no
// evaluation. The run's own need not be there.
data::ImageInput WithoutFiles(data::ImageInput images) {
  images.is_read = false;
  images.config.threads = 0;  // nor is memory kept for batches ahead
  if (!images.open) return images;
  images.open =
      [](data::Split split) -> std::shared_ptr<const data::ImageSource> {
    if (split == data::Split::kEvaluation) return nullptr;
    return data::MakeEncodedSource({.files = {"no image"}, .images = {{}}});
  };
  return images;
}

}  // namespace

agents::TaskSpec TaskOf(const Invocation& invocation) {
  const RunConfig& config = invocation.config();
  CheckReplay(config.replay, config.learner.batch_size);
  return agents::MakeTaskSpec(config.task, invocation.registry.tasks);
}

std::unique_ptr<learner::Workload> MakeWorkload(
    const Invocation& invocation,
    std::unique_ptr<replicator::Replicator> replicator,
    replay::BatchSource* source, bool reads_images) {
  const RunConfig& config = invocation.config();
  const data::ImageInput images = config.ImagesOf(invocation.registry);
  learner::WorkloadArguments arguments{
      .learner = config.learner,
      .seed = static_cast<uint64_t>(config.run.seed),
      .replicator = std::move(replicator),
      .images = reads_images ? images : WithoutFiles(images)};
  if (config.has_actors()) {
    arguments.spec = config.SpecOf(TaskOf(invocation));
    arguments.source = source;
  }
  return config.workload->make(config.section(), std::move(arguments));
}

std::unique_ptr<learner::Workload> MakeModel(const Invocation& invocation,
                                             const agents::TaskSpec& task) {
  const RunConfig& config = invocation.config();
  const auto seed = static_cast<uint64_t>(config.run.seed);
  learner::WorkloadArguments arguments{
      .learner = config.learner,
      .seed = seed,
      .replicator =
          replicator::MakeVariableReplicator(config.learner.replication, seed),
      .images = WithoutFiles(config.ImagesOf(invocation.registry))};
  if (config.has_actors()) arguments.spec = config.SpecOf(task);
  return config.workload->make(config.section(), std::move(arguments));
}

}  // namespace replicant::programs
