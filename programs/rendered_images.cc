#include "programs/rendered_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "env/control_environment.h"
#include "env/renderer/renderer.h"
#include "env/renderer/scene.h"

namespace replicant::programs {
namespace {

using data::ImageReader;
using data::ImageSource;
using data::View;

// Largest displacement of a camera, as a share of the width that it sees at the
// place that it is fixed to, and factors of its angle of view and of the
// lights.
constexpr double kDisplacement = 0.1;
constexpr double kLeastZoom = 0.8, kMostZoom = 1.25;
constexpr float kLeastLight = 0.4F, kMostLight = 1.2F;

struct Domain {
  env::TaskDefinition task;
  env::MjModelPtr model;
  std::vector<int> cameras;
};

// Cameras that see the whole domain: not those on a limb or in an eye.
std::vector<int> OutsideCameras(const mjModel& model) {
  std::vector<int> cameras;
  for (int i = 0; i < model.ncam; ++i) {
    const std::string_view name(model.names + model.name_camadr[i]);
    const bool is_inside = name.find("ego") != std::string_view::npos ||
                           name.find("eyes") != std::string_view::npos ||
                           name.find("hand") != std::string_view::npos;
    if (!is_inside) cameras.push_back(i);
  }
  if (cameras.empty()) cameras.push_back(-1);
  return cameras;
}

// A copy of a domain's environment, and what draws it.
class Stage {
 public:
  // `stream` selects the random streams of the episodes.
  Stage(const Domain& domain, uint64_t seed, int64_t stream)
      : domain_(domain),
        environment_(env::MakeEnvironment(
            domain.task, {.seed = seed, .index = stream}, *domain.model)),
        renderer_(env::MakeRenderer(environment_->physics().model(), {})) {}

  void Draw(int64_t episode, RandomStream& random, int64_t side,
            std::span<uint8_t> rgb) {
    environment_->SeekEpisode(episode);
    environment_->Reset({});
    env::Physics& physics = environment_->mutable_physics();
    mjModel& model = physics.mutable_model();
    if (environment_->ResetChangesAssets()) renderer_->ReloadAssets(model);
    const int camera = domain_.cameras[static_cast<size_t>(
        random.UniformInt(static_cast<int64_t>(domain_.cameras.size())))];
    MoveCameras(model, random);
    ColorLights(model, random);
    // the places of cameras and lights follow the model
    (void)physics.ForwardWithoutActuation();
    const auto pixels = static_cast<int>(side);
    renderer_->Render(model, physics.mutable_data(), camera, pixels, pixels,
                      rgb);
  }

 private:
  void MoveCameras(mjModel& model, RandomStream& random) const {
    const mjModel& original = *domain_.model;
    for (int i = 0; i < model.ncam; ++i) {
      const mjtNum* from = original.cam_pos + 3 * i;
      const double width =
          2.0 * mju_norm3(from) *
          std::tan(original.cam_fovy[i] / 2.0 * std::numbers::pi / 180.0);
      for (int axis = 0; axis < 3; ++axis) {
        model.cam_pos[3 * i + axis] =
            from[axis] + width * random.Uniform(-kDisplacement, kDisplacement);
      }
      model.cam_fovy[i] = std::min(
          original.cam_fovy[i] * random.Uniform(kLeastZoom, kMostZoom), 120.0);
    }
  }

  void ColorLights(mjModel& model, RandomStream& random) const {
    const mjModel& original = *domain_.model;
    const auto color = [&](const float* from, float* to) {
      for (int c = 0; c < 3; ++c) {
        to[c] = from[c] *
                static_cast<float>(random.Uniform(kLeastLight, kMostLight));
      }
    };
    color(original.vis.headlight.ambient, model.vis.headlight.ambient);
    color(original.vis.headlight.diffuse, model.vis.headlight.diffuse);
    for (int i = 0; i < model.nlight; ++i) {
      color(original.light_diffuse + 3 * i, model.light_diffuse + 3 * i);
      color(original.light_ambient + 3 * i, model.light_ambient + 3 * i);
    }
  }

  const Domain& domain_;
  std::unique_ptr<env::ControlEnvironment> environment_;
  std::unique_ptr<env::Renderer> renderer_;
};

bool CanDraw(const Domain& domain) {
  constexpr int64_t kSide = 8;
  std::vector<uint8_t> rgb(kSide * kSide * 3);
  RandomStream random(/*seed=*/0, "rendered/test");
  try {
    Stage(domain, /*seed=*/0, /*stream=*/0).Draw(0, random, kSide, rgb);
  } catch (const env::UnsupportedScene&) {
    return false;
  }
  return true;
}

class RenderedSource : public ImageSource {
 public:
  RenderedSource(const env::TaskRegistry& tasks, uint64_t seed, bool is_train,
                 int64_t size)
      : seed_(seed), is_train_(is_train), size_(size) {
    std::set<std::string> seen;
    for (const env::TaskDefinition& task : tasks.tasks()) {
      const std::string name = task.name.substr(0, task.name.find('-'));
      if (!seen.insert(name).second) continue;
      env::MjModelPtr model = env::LoadModel(task, {});
      std::vector<int> cameras = OutsideCameras(*model);
      Domain domain{task, std::move(model), std::move(cameras)};
      if (!CanDraw(domain)) continue;
      names_.push_back(name);
      domains_.push_back(std::move(domain));
    }
  }

  int64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override {
    return names_;
  }
  int64_t num_classes() const override {
    return static_cast<int64_t>(names_.size());
  }
  std::unique_ptr<ImageReader> MakeReader() const override {
    return std::make_unique<Reader>(*this);
  }

 private:
  class Reader : public ImageReader {
   public:
    explicit Reader(const RenderedSource& source)
        : source_(source), stages_(source.domains_.size()) {}

    int32_t Read(int64_t index, View view, int64_t side,
                 std::span<uint8_t> rgb) override {
      const auto label = static_cast<size_t>(index) % stages_.size();
      const char* split = source_.is_train_ ? "train" : "evaluation";
      if (!stages_[label]) {
        stages_[label] =
            std::make_unique<Stage>(source_.domains_[label], source_.seed_,
                                    /*stream=*/source_.is_train_ ? 0 : 1);
      }
      RandomStream random(source_.seed_,
                          fmt::format("rendered/{}-{}", split, index));
      stages_[label]->Draw(index, random, side, rgb);
      view.Finish(side, rgb);
      return static_cast<int32_t>(label);
    }

   private:
    const RenderedSource& source_;
    std::vector<std::unique_ptr<Stage>> stages_;  // made when first drawn
  };

  const uint64_t seed_;
  const bool is_train_;
  const int64_t size_;
  std::vector<std::string> names_;
  std::vector<Domain> domains_;
};

}  // namespace

data::MakeImageSource RenderedImages(const env::TaskRegistry& tasks) {
  return [tasks](const data::ImagesConfig& config, data::Split split,
                 uint64_t seed) -> std::shared_ptr<const ImageSource> {
    const bool is_train = split == data::Split::kTrain;
    const int64_t size = is_train ? config.num_train : config.num_evaluation;
    if (size == 0) return nullptr;
    return std::make_shared<RenderedSource>(tasks, seed, is_train, size);
  };
}

}  // namespace replicant::programs
