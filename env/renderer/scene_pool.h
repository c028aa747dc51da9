#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "env/renderer/scene.h"

namespace replicant::env {

// Scenes that the renderers of one model's copies use in turns: as many as
// pictures are drawn at once. A scene takes 0.3 MB or more.
//
// Thread-safety: any thread may use a pool.
class ScenePool {
 public:
  // A scene for `model`, one of the copies.
  std::unique_ptr<Scene> Take(const mjModel& model);

  // Keeps `scene` for the next Take().
  void Return(std::unique_ptr<Scene> scene);

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Scene>> idle_ GUARDED_BY(mutex_);
};

}  // namespace replicant::env
