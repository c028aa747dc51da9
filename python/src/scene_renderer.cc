#include "python/src/scene_renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "python/src/module.h"

namespace replicant::python {
namespace nb = nanobind;
namespace {

// Held by one batch at a time, whose threads keep their renderers for the next
// one. Locked before the mutex of a renderer.
Mutex& BatchMutex() {
  static Mutex mutex;
  return mutex;
}

struct Format {
  const char* shape;
  size_t numbers;  // of a pixel
  nb::dlpack::dtype type;
};

Format FormatOf(Output output) {
  switch (output) {
    case Output::kColor:
      return {"uint8 [height, width, 3]", 3, nb::dtype<uint8_t>()};
    case Output::kDepth:
      return {"float32 [height, width]", 1, nb::dtype<float>()};
    case Output::kSegmentation:
      break;
  }
  return {"int32 [height, width, 2]", 2, nb::dtype<int32_t>()};
}

size_t BytesOf(Output output, int height, int width) {
  const Format format = FormatOf(output);
  return format.numbers * (format.type.bits / 8) * static_cast<size_t>(height) *
         static_cast<size_t>(width);
}

void CheckOutput(Output output, int height, int width, size_t pictures,
                 const OutputArray& out) {
  env::CheckImageSize(height, width);
  const Format format = FormatOf(output);
  if (out.dtype() == format.type &&
      out.nbytes() == pictures * BytesOf(output, height, width)) {
    return;
  }
  throw InvalidArgument(
      fmt::format("render: out has {} bytes, want {}, {} pictures of {} x {}",
                  out.nbytes(), format.shape, pictures, height, width));
}

template <typename T>
std::span<T> SpanOf(std::byte* bytes, size_t size) {
  return {reinterpret_cast<T*>(bytes), size / sizeof(T)};
}

void Draw(env::RaycastRenderer& renderer, const mjModel& model,
          const mjvScene& scene, Output output, int height, int width,
          std::byte* out) {
  const size_t size = BytesOf(output, height, width);
  switch (output) {
    case Output::kColor:
      return renderer.RenderScene(model, scene, height, width,
                                  SpanOf<uint8_t>(out, size));
    case Output::kDepth:
      return renderer.RenderDepth(model, scene, height, width,
                                  SpanOf<float>(out, size));
    case Output::kSegmentation:
      break;
  }
  renderer.RenderSegmentation(model, scene, height, width,
                              SpanOf<int32_t>(out, size));
}

template <typename T>
T& StructureAt(const nb::object& object) {
  return *reinterpret_cast<T*>(nb::cast<uintptr_t>(object.attr("_address")));
}

// The structure of which `field`, a view of NumPy's, is the member at `offset`.
const std::byte* OwnerOf(const nb::object& field, size_t offset, size_t size) {
  const auto view = nb::cast<nb::ndarray<nb::ro, nb::device::cpu>>(field);
  if (view.nbytes() != size) {
    throw Error(fmt::format("render: a field of MuJoCo's has {} bytes, want {}",
                            view.nbytes(), size));
  }
  return static_cast<const std::byte*>(view.data()) - offset;
}

}  // namespace

const mjModel& ModelAt(const nb::object& model) {
  return StructureAt<const mjModel>(model);
}

mjData& DataAt(const nb::object& data) { return StructureAt<mjData>(data); }

const mjvScene& SceneAt(const nb::object& scene) {
  const auto* found = reinterpret_cast<const mjvScene*>(OwnerOf(
      scene.attr("flags"), offsetof(mjvScene, flags), sizeof(mjvScene::flags)));
  if (found->maxgeom != nb::cast<int>(scene.attr("maxgeom")) ||
      found->ngeom != nb::cast<int>(scene.attr("ngeom")) ||
      found->nlight != nb::cast<int>(scene.attr("nlight"))) {
    throw Error("render: the scene is not laid out as this build expects");
  }
  return *found;
}

const mjvOption& OptionAt(const nb::object& option) {
  const auto* found = reinterpret_cast<const mjvOption*>(
      OwnerOf(option.attr("geomgroup"), offsetof(mjvOption, geomgroup),
              sizeof(mjvOption::geomgroup)));
  if (found->label != nb::cast<int>(nb::int_(option.attr("label"))) ||
      found->frame != nb::cast<int>(nb::int_(option.attr("frame")))) {
    throw Error("render: the option is not laid out as this build expects");
  }
  return *found;
}

SceneRenderer::SceneRenderer(const nb::object& model, bool is_known,
                             const SceneRenderer* like)
    : is_known_(is_known) {
  if (!is_known) bound_ = std::make_unique<BoundModel>(model);
  const mjModel& drawn = is_known ? ModelAt(model) : bound_->get();
  const GilRelease release;
  if (like == nullptr) {
    renderer_ = std::make_unique<env::RaycastRenderer>(drawn);
    return;
  }
  const MutexLock lock(like->mutex_);
  renderer_ =
      std::make_unique<env::RaycastRenderer>(drawn, like->renderer_.get());
}

void SceneRenderer::Render(const nb::object& model, const nb::object& scene,
                           Output output, int height, int width,
                           const OutputArray& out) {
  CheckOutput(output, height, width, 1, out);
  auto* const bytes = static_cast<std::byte*>(out.data());
  const mjModel* const known = is_known_ ? &ModelAt(model) : nullptr;
  std::optional<BoundScene> copy;
  const mjvScene& taken =
      is_known_ ? SceneAt(scene) : copy.emplace().Take(scene);
  const GilRelease release;
  const MutexLock lock(mutex_);
  Draw(*renderer_, known != nullptr ? *known : bound_->get(), taken, output,
       height, width, bytes);
}

void SceneRenderer::ReloadAssets(const nb::object& model) {
  std::unique_ptr<BoundModel> bound;
  if (!is_known_) bound = std::make_unique<BoundModel>(model);
  const mjModel& reloaded = bound ? bound->get() : ModelAt(model);
  const GilRelease release;
  const MutexLock batch(BatchMutex());
  const MutexLock lock(mutex_);
  renderer_->ReloadAssets(reloaded);
  bound_ = std::move(bound);
  own_.clear();
}

void SceneRenderer::DrawView(const View& view, Output output, int height,
                             int width, const mjvOption* option, size_t thread,
                             std::byte* out) {
  Own& own = own_[thread];
  if (!own.renderer) {
    own.scene = std::make_unique<env::Scene>(*view.model);
    own.renderer = renderer_->MakeSibling(*view.model);
  }
  if (option != nullptr) {
    own.scene->option() = *option;
  } else {
    mjv_defaultOption(&own.scene->option());
  }
  const mjvScene& scene =
      own.scene->Update(*view.model, *view.data, view.camera);
  Draw(static_cast<env::RaycastRenderer&>(*own.renderer), *view.model, scene,
       output, height, width, out);
}

void SceneRenderer::RenderBatch(const std::vector<View>& views, Output output,
                                int height, int width, const mjvOption* option,
                                int num_threads, const OutputArray& out) {
  CheckOutput(output, height, width, views.size(), out);
  // a data's scratch memory is for one thread: its views stay together
  std::map<const mjData*, size_t> group_of;
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < views.size(); ++i) {
    const auto [at, is_new] =
        group_of.try_emplace(views[i].data, groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(i);
  }
  const size_t threads = std::clamp<size_t>(static_cast<size_t>(num_threads), 1,
                                            std::max<size_t>(1, groups.size()));
  const GilRelease release;
  const MutexLock lock(BatchMutex());
  for (const View& view : views) {
    auto& own = view.renderer->own_;
    if (own.size() < threads) own.resize(threads);
  }

  const size_t size = BytesOf(output, height, width);
  auto* const bytes = static_cast<std::byte*>(out.data());
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> errors(threads);
  const auto work = [&](size_t thread) {
    try {
      for (size_t g = next++; g < groups.size(); g = next++) {
        for (const size_t i : groups[g]) {
          try {
            views[i].renderer->DrawView(views[i], output, height, width, option,
                                        thread, bytes + i * size);
          } catch (const env::UnsupportedScene& error) {
            throw env::UnsupportedScene(
                fmt::format("picture {}: {}", i, error.what()));
          }
        }
      }
    } catch (...) {
      errors[thread] = std::current_exception();
      next = groups.size();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace replicant::python
