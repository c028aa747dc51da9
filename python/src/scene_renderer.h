#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "env/renderer/raycast/raycast_renderer.h"
#include "env/renderer/scene.h"
#include "python/src/bound_model.h"

namespace replicant::python {

// What a picture holds of each pixel; see
// env/renderer/raycast/raycast_renderer.h.
enum class Output {
  kColor,         // uint8 [height, width, 3]
  kDepth,         // float32 [height, width]
  kSegmentation,  // int32 [height, width, 2]
};

using OutputArray =
    nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;

// The ray caster for a `mujoco.MjModel` of a user's.
//
// The structures of the model, its data and its scenes are read where they are
// if `is_known`: the loaded MuJoCo is the one whose headers this module was
// built with. Otherwise they are copied by BoundModel and BoundScene.
//
// Thread-safety: any thread may call any method, with the GIL, which is
// released while the call draws or waits for others.
class SceneRenderer {
 public:
  // Takes over unchanged textures of `like`, which may be null. Throws
  // UnsupportedScene if the model cannot be drawn.
  SceneRenderer(const nanobind::object& model, bool is_known,
                const SceneRenderer* like);

  // Draws a `mujoco.MjvScene` of `model`, the one of the constructor. Releases
  // the GIL. Throws InvalidArgument if `out` does not fit `output`, and as
  // RaycastRenderer.
  void Render(const nanobind::object& model, const nanobind::object& scene,
              Output output, int height, int width, const OutputArray& out);
  void ReloadAssets(const nanobind::object& model);

  // One picture of a batch.
  struct View {
    SceneRenderer* renderer;
    const mjModel* model;
    mjData* data;
    int camera;
  };
  // Draws all views, one after another in `out`, on `num_threads` threads,
  // without the GIL. Only with a known layout. `option` may be null.
  static void RenderBatch(const std::vector<View>& views, Output output,
                          int height, int width, const mjvOption* option,
                          int num_threads, const OutputArray& out);

 private:
  // What a thread of a batch draws with.
  struct Own {
    std::unique_ptr<env::Scene> scene;
    std::unique_ptr<env::Renderer> renderer;
  };
  void DrawView(const View& view, Output output, int height, int width,
                const mjvOption* option, size_t thread, std::byte* out);

  const bool is_known_;
  mutable Mutex mutex_;
  std::unique_ptr<BoundModel> bound_ GUARDED_BY(mutex_);  // unless known
  std::unique_ptr<env::RaycastRenderer> renderer_;
  std::vector<Own> own_;  // by thread of a batch
};

// The structures behind objects of MuJoCo's bindings, in this build's layout.
const mjModel& ModelAt(const nanobind::object& model);
mjData& DataAt(const nanobind::object& data);
// Throw Error if the structure is not where it should be.
const mjvScene& SceneAt(const nanobind::object& scene);
const mjvOption& OptionAt(const nanobind::object& option);

}  // namespace replicant::python
