#include "env/renderer/scene_pool.h"

#include <utility>

namespace replicant::env {

std::unique_ptr<Scene> ScenePool::Take(const mjModel& model) {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      // the last one used: the cache may still have it
      std::unique_ptr<Scene> scene = std::move(idle_.back());
      idle_.pop_back();
      return scene;
    }
  }
  return std::make_unique<Scene>(model);
}

void ScenePool::Return(std::unique_ptr<Scene> scene) {
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(scene));
}

}  // namespace replicant::env
