#include "programs/run/registry.h"

#include <utility>

#include "env/tasks/suite.h"
#include "learner/data/rendered_images.h"
#include "learner/workloads/built_in.h"

namespace replicant::programs {

Registry Registry::BuiltIn() {
  const env::TaskRegistry tasks(env::SuiteTasks());
  data::ImageSources images = data::BuiltInImageSources();
  images["rendered"] = data::RenderedImages(tasks);
  return {.tasks = tasks,
          .workloads = learner::BuiltInWorkloads(),
          .images = std::move(images),
          .strategies = replicator::StrategyRegistry::BuiltIn()};
}

}  // namespace replicant::programs
