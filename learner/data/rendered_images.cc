#include "learner/data/rendered_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <numbers>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "env/control_environment.h"
#include "env/renderer/renderer.h"
#include "env/renderer/scene.h"

namespace replicant::data {
namespace {

// What `images.variation` 1 allows.
//
// Range of the camera, turned around the moving bodies of the scene: angles in
// radians, the change of its distance as a logarithm, and the displacement as a
// share of half the picture.
constexpr double kRadiansPerDegree = std::numbers::pi / 180.0;
constexpr double kMaxYaw = std::numbers::pi;
constexpr double kMaxPitch = 0.6;
constexpr double kMaxRoll = 0.4;
constexpr double kMaxLogDistance = 0.5;
constexpr double kMaxDisplacement = 0.5;
// Angles between the ground and the direction to a camera that was above.
constexpr double kLeastElevation = 0.1, kMostElevation = 1.5;
// Factors of the lights and of each colour of the picture are in
// [exp(-x), exp(x)], its exponents likewise.
constexpr double kMaxLogLight = 0.7;
constexpr double kMaxLogGamma = 0.7;
// Share of a random colour in the colour of a surface.
constexpr double kMaxPaint = 0.8;

struct Domain {
  std::string name;
  env::TaskDefinition task;
  env::MjModelPtr model;
  std::vector<int> cameras;
  // of `model`; the cameras of its copies share its assets
  std::unique_ptr<env::Renderer> renderer;
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

// Numbers around 0 that grow with `images.variation`.
class Variation {
 public:
  Variation(double strength, RandomStream* random)
      : strength_(strength), random_(*random) {}

  // Uniform in [-limit, limit] times the variation.
  double operator()(double limit) {
    return strength_ * random_.Uniform(-limit, limit);
  }
  // exp() of that.
  double Factor(double limit) { return std::exp((*this)(limit)); }
  // Mixes random colours into `from`, [count, 4]; transparency stays.
  void Paint(const float* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) {
      const double share = strength_ * random_.Uniform(0.0, kMaxPaint);
      for (int64_t c = 4 * i; c < 4 * i + 3; ++c) {
        to[c] = static_cast<float>(share * random_.Uniform() +
                                   (1.0 - share) * double{from[c]});
      }
    }
  }

 private:
  const double strength_;
  RandomStream& random_;
};

using Axis = std::array<mjtNum, 3>;

Axis Column(const mjtNum* matrix, int column) {
  return {matrix[column], matrix[3 + column], matrix[6 + column]};
}

// Turns the columns of `frame` around `axis`, and `offset` unless it is null.
void Turn(const Axis& axis, double angle, mjtNum* offset, mjtNum* frame) {
  std::array<mjtNum, 4> quaternion;
  std::array<mjtNum, 9> turn, turned;
  mju_axisAngle2Quat(quaternion.data(), axis.data(), angle);
  mju_quat2Mat(turn.data(), quaternion.data());
  mju_mulMatMat(turned.data(), turn.data(), frame, 3, 3, 3);
  std::ranges::copy(turned, frame);
  if (offset == nullptr) return;
  Axis result;
  mju_mulMatVec3(result.data(), turn.data(), offset);
  std::ranges::copy(result, offset);
}

// Makes `back` the direction of the camera's third axis, by the least turn.
void LookBack(const Axis& back, mjtNum* frame) {
  const Axis old = Column(frame, 2);
  Axis axis;
  mju_cross(axis.data(), old.data(), back.data());
  const double sine = mju_normalize3(axis.data());
  Turn(axis, std::atan2(sine, mju_dot3(old.data(), back.data())), nullptr,
       frame);
}

// Raises each colour, as a share of the brightest, to a power.
void VaryColors(std::span<uint8_t> rgb, Variation& vary) {
  for (size_t c = 0; c < 3; ++c) {
    const double exponent = vary.Factor(kMaxLogGamma);
    std::array<uint8_t, 256> table;
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<uint8_t>(std::lround(
          255.0 * std::pow(static_cast<double>(i) / 255.0, exponent)));
    }
    for (size_t i = c; i < rgb.size(); i += 3) rgb[i] = table[rgb[i]];
  }
}

// A copy of a domain's environment, and its camera.
class Stage {
 public:
  // `stream` selects the random streams of the episodes.
  Stage(const Domain& domain, uint64_t seed, int64_t stream)
      : domain_(domain),
        environment_(env::MakeEnvironment(
            domain.task, {.seed = seed, .index = stream}, *domain.model)),
        renderer_(
            domain.renderer->MakeSibling(environment_->physics().model())) {}

  // Draws the start of an episode, [side, side, 3].
  void Draw(int64_t episode, double strength, RandomStream& random,
            int64_t side, std::span<uint8_t> rgb) {
    environment_->SeekEpisode(episode);
    environment_->Reset({});
    env::Physics& physics = environment_->mutable_physics();
    mjModel& model = physics.mutable_model();
    if (environment_->ResetChangesAssets()) renderer_->ReloadAssets(model);
    const int camera = domain_.cameras[static_cast<size_t>(
        random.UniformInt(static_cast<int64_t>(domain_.cameras.size())))];
    Variation vary(strength, &random);
    VaryLights(model, vary);
    VarySurfaces(model, vary);
    // the places of cameras and lights follow the model
    (void)physics.ForwardWithoutActuation();
    if (camera >= 0) MoveCamera(camera, vary);
    const auto pixels = static_cast<int>(side);
    renderer_->Render(model, physics.mutable_data(), camera, pixels, pixels,
                      rgb);
    VaryColors(rgb, vary);
  }

 private:
  void VaryLights(mjModel& model, Variation& vary) const {
    const mjModel& original = *domain_.model;
    const auto color = [&](const float* from, float* to) {
      for (int c = 0; c < 3; ++c) {
        to[c] = from[c] * static_cast<float>(vary.Factor(kMaxLogLight));
      }
    };
    color(original.vis.headlight.ambient, model.vis.headlight.ambient);
    color(original.vis.headlight.diffuse, model.vis.headlight.diffuse);
    for (int i = 0; i < model.nlight; ++i) {
      color(original.light_diffuse + 3 * i, model.light_diffuse + 3 * i);
      color(original.light_ambient + 3 * i, model.light_ambient + 3 * i);
    }
  }

  void VarySurfaces(mjModel& model, Variation& vary) const {
    const mjModel& original = *domain_.model;
    vary.Paint(original.mat_rgba, model.nmat, model.mat_rgba);
    vary.Paint(original.geom_rgba, model.ngeom, model.geom_rgba);
  }

  // Directs a camera at the centre of mass of all that moves, turns it around
  // this, changes its distance, rolls it and displaces it.
  void MoveCamera(int camera, Variation& vary) {
    mjData& data = environment_->mutable_physics().mutable_data();
    mjtNum* position = data.cam_xpos + 3 * camera;
    // columns: right, up, back
    mjtNum* frame = data.cam_xmat + 9 * camera;
    const mjtNum* center = data.subtree_com;
    Axis offset;
    mju_sub3(offset.data(), position, center);
    LookBack(offset, frame);
    const double elevation = std::asin(std::clamp(
        offset[2] / std::max(mju_norm3(offset.data()), mjMINVAL), -1.0, 1.0));
    const double wanted = std::clamp(elevation + vary(kMaxPitch),
                                     std::min(elevation, kLeastElevation),
                                     std::max(elevation, kMostElevation));

    // the camera rises as it turns down
    Turn(Column(frame, 0), elevation - wanted, offset.data(), frame);
    Turn({0.0, 0.0, 1.0}, vary(kMaxYaw), offset.data(), frame);
    Turn(Column(frame, 2), vary(kMaxRoll), nullptr, frame);

    const double distance = vary.Factor(kMaxLogDistance);
    const double half_width =
        distance * mju_norm3(offset.data()) *
        std::tan(domain_.model->cam_fovy[camera] / 2.0 * kRadiansPerDegree);
    mju_addScl3(position, center, offset.data(), distance);
    for (const int axis : {0, 1}) {
      mju_addToScl3(position, Column(frame, axis).data(),
                    half_width * vary(kMaxDisplacement));
    }
  }

  const Domain& domain_;
  std::unique_ptr<env::ControlEnvironment> environment_;
  std::unique_ptr<env::Renderer> renderer_;
};

// Throws UnsupportedScene for a domain that is left out.
Domain LoadDomain(std::string name, const env::TaskDefinition& task) {
  env::MjModelPtr model = env::LoadModel(task, {});
  if (model->nskin > 0) throw env::UnsupportedScene(name + " has a skin");
  std::vector<int> cameras = OutsideCameras(*model);
  auto renderer =
      env::MakeRenderer(*model, {.kind = env::RendererKind::kRaycast});
  Domain domain{std::move(name), task, std::move(model), std::move(cameras),
                std::move(renderer)};
  constexpr int64_t kSide = 8;
  std::vector<uint8_t> rgb(kSide * kSide * 3);
  RandomStream random(/*seed=*/0, "rendered/test");
  Stage(domain, /*seed=*/0, /*stream=*/0)
      .Draw(0, /*strength=*/0.0, random, kSide, rgb);
  return domain;
}

// The domains that can be drawn, in the order of their first tasks.
std::vector<Domain> LoadDomains(const env::TaskRegistry& tasks) {
  std::vector<Domain> domains;
  std::set<std::string> seen;
  for (const env::TaskDefinition& task : tasks.tasks()) {
    const std::string name = task.name.substr(0, task.name.find('-'));
    if (!seen.insert(name).second) continue;
    try {
      domains.push_back(LoadDomain(name, task));
    } catch (const env::UnsupportedScene&) {
      continue;
    }
  }
  return domains;
}

using SharedDomains = std::shared_ptr<const std::vector<Domain>>;

class RenderedSource : public ImageSource {
 public:
  RenderedSource(SharedDomains domains, uint64_t seed, bool is_train,
                 int64_t size, double variation)
      : domains_(std::move(domains)),
        seed_(seed),
        is_train_(is_train),
        size_(size),
        variation_(variation) {
    for (const Domain& domain : *domains_) names_.push_back(domain.name);
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
        : source_(source), stages_(source.domains_->size()) {}

    int32_t Read(int64_t index, View view, int64_t side,
                 std::span<uint8_t> rgb) override {
      const auto label = static_cast<size_t>(index) % stages_.size();
      const char* split = source_.is_train_ ? "train" : "evaluation";
      if (!stages_[label]) {
        stages_[label] =
            std::make_unique<Stage>((*source_.domains_)[label], source_.seed_,
                                    /*stream=*/source_.is_train_ ? 0 : 1);
      }
      RandomStream random(source_.seed_,
                          fmt::format("rendered/{}-{}", split, index));
      stages_[label]->Draw(index, source_.variation_, random, side, rgb);
      view.Finish(side, rgb);
      return static_cast<int32_t>(label);
    }

   private:
    const RenderedSource& source_;
    std::vector<std::unique_ptr<Stage>> stages_;  // made when first drawn
  };

  const SharedDomains domains_;
  const uint64_t seed_;
  const bool is_train_;
  const int64_t size_;
  const double variation_;
  std::vector<std::string> names_;
};

}  // namespace

MakeImageSource RenderedImages(const env::TaskRegistry& tasks) {
  struct Loaded {
    std::once_flag once;
    SharedDomains domains;
  };
  // loading takes seconds: once for both splits
  const auto loaded = std::make_shared<Loaded>();
  return [tasks, loaded](const ImagesConfig& config, Split split,
                         uint64_t seed) -> std::shared_ptr<const ImageSource> {
    const bool is_train = split == Split::kTrain;
    const int64_t size = is_train ? config.num_train : config.num_evaluation;
    if (size == 0) return nullptr;
    std::call_once(loaded->once, [&] {
      loaded->domains =
          std::make_shared<const std::vector<Domain>>(LoadDomains(tasks));
    });
    return std::make_shared<RenderedSource>(loaded->domains, seed, is_train,
                                            size, config.variation);
  };
}

}  // namespace replicant::data
