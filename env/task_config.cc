#include "env/task_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/edit.h"
#include "base/error.h"
#include "base/rng.h"
#include "env/renderer/scene.h"
#include "env/select_arrays.h"

namespace replicant::env {
namespace {

constexpr int64_t kMaxCameras = 16;

// The environment with the given index: its selected arrays, whose numbers are
// checked, its action repeat and its disturbances.
std::unique_ptr<Environment> Wrapped(const TaskConfig& config, uint64_t seed,
                                     int64_t index,
                                     std::unique_ptr<Environment> one) {
  if (!config.observations.empty()) {
    one = std::make_unique<SelectArrays>(std::move(one), config.observations);
  }
  one = std::make_unique<NumberCheck>(std::move(one), config.name, index);
  if (config.action_repeat != 1) {
    one = std::make_unique<ActionRepeat>(std::move(one), config.action_repeat,
                                         config.action_repeat_reward);
  }
  if (config.disturbances.IsAny()) {
    const RandomStream random(seed, fmt::format("environment-{}", index));
    one = std::make_unique<Disturbances>(std::move(one), config.disturbances,
                                         random.Substream("disturbances"));
  }
  return one;
}

// A key of `config` that needs a simulation, and its value without one; empty
// if there is none.
std::pair<std::string, std::string> KeyOfASimulation(const TaskConfig& config) {
  const DisturbanceConfig::Push& push = config.disturbances.push;
  if (!config.mjcf.empty()) return {"task.mjcf", "empty"};
  if (!config.randomization.empty()) {
    return {"task.randomization.fields", "[]"};
  }
  if (push.newton > 0.0 && push.when.probability > 0.0) {
    return {"task.disturbances.push.newton", "0"};
  }
  if (config.distractions.IsAny()) {
    return {"task.distractions", "no camera that moves, and no background"};
  }
  return {};
}

// One camera for each of `names`, with its own size if there are sizes, and
// otherwise as `shared`.
std::vector<CameraOptions> CamerasOf(const std::vector<std::string>& names,
                                     const std::vector<int>& heights,
                                     const std::vector<int>& widths,
                                     const CameraOptions& shared) {
  std::vector<CameraOptions> cameras;
  for (size_t i = 0; i < names.size(); ++i) {
    CameraOptions& camera = cameras.emplace_back(shared);
    camera.camera = names[i];
    if (!heights.empty()) camera.height = heights[i];
    if (!widths.empty()) camera.width = widths[i];
  }
  return cameras;
}

// Reads the cameras in place of the one in c->camera.
void ReadCameras(config::Reader& pixels, PixelOptions* c) {
  std::vector<std::string> names;
  std::vector<int> heights, widths;
  pixels.Field("cameras", &names, {0, kMaxCameras},
               "names or numbers of several cameras in place of camera, in the "
               "order of their images; each is an image of its own of the "
               "observation");
  pixels.Field("heights", &heights, {1, 4096}, {0, kMaxCameras},
               "rows of the frames of each of cameras; empty: height for all");
  pixels.Field("widths", &widths, {1, 4096}, {0, kMaxCameras},
               "columns of the frames of each of cameras; empty: width for "
               "all");
  bool fits = true;
  for (const auto& [key, sizes] :
       {std::pair("heights", &heights), std::pair("widths", &widths)}) {
    if (sizes->empty() || sizes->size() == names.size()) continue;
    pixels.Error(key, fmt::format("want one for each of the {} cameras, or "
                                  "none; got {}",
                                  names.size(), sizes->size()));
    fits = false;
  }
  for (const std::string& name : std::set(names.begin(), names.end())) {
    if (std::ranges::count(names, name) == 1) continue;
    pixels.Error("cameras", fmt::format("want each camera once, got '{}' {} "
                                        "times",
                                        name, std::ranges::count(names, name)));
  }
  if (fits) c->cameras = CamerasOf(names, heights, widths, c->camera);
}

// Of an environment that is not a MuJoCo simulation: its own images are its
// pixels.
void CheckImages(const TaskConfig& config, const ObservationSpec& spec) {
  const bool has_images = spec.pixels_size() > 0;
  if (config.has_pixels == has_images) return;
  throw ConfigError(
      has_images
          ? fmt::format("task.pixels.enabled: false: the observation of {} has "
                        "images; hint: true, with an encoder of pixels",
                        config.name)
          : fmt::format("task.pixels.enabled: true: {} is not a MuJoCo "
                        "simulation, and its observation has no image; "
                        "allowed: false",
                        config.name));
}

// Of keys that change pictures.
void CheckPictures(config::Reader& reader, const TaskConfig& c) {
  const bool has_background = c.distractions.background.is_enabled;
  if (!c.has_pixels && c.distractions.IsAny()) {
    reader.Error("distractions", "of pictures, but pixels.enabled is false");
  }
  if (!c.has_pixels && c.disturbances.frames.IsAny()) {
    reader.Error("disturbances.frames",
                 "of pictures, but pixels.enabled is false");
  }
  if (has_background && c.pixels.camera.renderer.kind == RendererKind::kGl) {
    reader.Error("distractions.background.enabled",
                 "true with pixels.renderer gl, which draws no background; "
                 "allowed: false, or renderer raycast or auto");
  }
}

// The cameras of a simulation. Behind them only the ray caster draws a
// background, so that auto is not gl with one.
std::unique_ptr<Pixels> MakePixels(const TaskConfig& config,
                                   std::unique_ptr<Environment> environment) {
  PixelOptions options = config.pixels;
  if (!config.distractions.background.is_enabled) {
    return std::make_unique<Pixels>(std::move(environment), options);
  }
  options.cameras = options.Cameras();
  for (CameraOptions& camera : options.cameras) {
    RendererKind& kind = camera.renderer.kind;
    if (kind == RendererKind::kAuto) kind = RendererKind::kRaycast;
  }
  try {
    return std::make_unique<Pixels>(std::move(environment), options);
  } catch (const UnsupportedScene& reason) {
    const std::string_view why = reason.what();
    throw ConfigError(
        fmt::format("task.distractions.background.enabled: true, but only "
                    "raycast draws a background, and not this model: {}; "
                    "allowed: false",
                    why.substr(0, why.find("; hint"))));
  }
}

// Distracts and disturbs the pictures of one environment.
void ChangePictures(const TaskConfig& config,
                    std::shared_ptr<const Backgrounds> backgrounds,
                    uint64_t seed, int64_t index, Pixels* pixels) {
  const RandomStream random(seed, fmt::format("environment-{}", index));
  if (config.distractions.IsAny()) {
    pixels->Distract(config.distractions, std::move(backgrounds),
                     random.Substream("distractions"));
  }
  if (config.disturbances.frames.IsAny()) {
    pixels->Disturb(config.disturbances.frames,
                    random.Substream("disturbances/frames"));
  }
}

}  // namespace

TaskConfig TaskConfig::Read(config::Reader& reader) {
  TaskConfig c;
  reader.Field(
      "name", &c.name,
      "DOMAIN-TASK; `replicant train --list` or `env_rollout --list` prints "
      "every name");
  reader.Field("mjcf", &c.mjcf,
               "model file (MJCF, URDF, .mjz or .zip) that replaces the task's "
               "own, relative to the file that holds this key; empty: the "
               "task's own. A run keeps a copy");
  reader.Field(
      "suite_folder", &c.suite_folder,
      "folder dm_control/suite with the Control Suite's models, "
      "relative to the file that holds this key; empty: the folder that "
      "scripts/setup installed");
  reader.Field("observations", &c.observations, {0, 1000},
               "names of the observation's arrays that the agent sees, in this "
               "order, also of an environment's own images; []: all");
  reader.Field("action_repeat", &c.action_repeat, {1, 100},
               "control steps for which each action is held");
  reader.Field(
      "action_repeat_reward", &c.action_repeat_reward,
      {{"mean", RewardReduction::kMean}, {"sum", RewardReduction::kSum}},
      "reduction of the rewards of these steps to one reward");
  config::Reader pixels =
      reader.Section("pixels", "camera frames as part of the observation");
  pixels.Field("enabled", &c.has_pixels,
               "whether the observation has pixels, uint8 [height, width, "
               "3 * frame_stack] of each camera");
  CameraOptions& camera = c.pixels.camera;
  pixels.Field("height", &camera.height, {1, 4096}, "rows of a frame");
  pixels.Field("width", &camera.width, {1, 4096}, "columns of a frame");
  pixels.Field(
      "camera", &camera.camera,
      "name or number of a camera; -1, or 0 without one: the free camera");
  pixels.Field(
      "renderer", &camera.renderer.kind,
      {{"auto", RendererKind::kAuto},
       {"raycast", RendererKind::kRaycast},
       {"gl", RendererKind::kGl}},
      "raycast: ray caster on any processor; gl: MuJoCo's OpenGL, slower "
      "without a GPU; auto: gl only for scenes that the ray caster cannot "
      "draw");
  pixels.Field("gl_platform", &camera.renderer.gl_platform,
               {{"auto", GlPlatform::kAuto},
                {"osmesa", GlPlatform::kOsMesa},
                {"egl", GlPlatform::kEglDevice},
                {"egl-surfaceless", GlPlatform::kEglSurfaceless}},
               "platform that provides OpenGL");
  pixels.Field(
      "egl_device", &camera.renderer.egl_device, {0, 63},
      "number of the GPU for platform egl, which has not yet run on one");
  pixels.Field("frame_stack", &c.pixels.frame_stack, {1, 16},
               "number of frames in an observation, oldest first");
  pixels.Field("state", &c.has_state_beside_pixels,
               "whether the agent sees the state in addition to the pixels: "
               "the numbers that it would see without them");
  ReadCameras(pixels, &c.pixels);
  config::Reader randomization = reader.Section(
      "randomization", "domain randomization, drawn anew for each episode");
  randomization.Sections("fields", &c.randomization, {0, 100},
                         "numbers of the model, changed in this order");
  reader.Section("disturbances", &c.disturbances,
                 "delays, noise, failures and pushes, as on a real robot");
  reader.Section("distractions", &c.distractions,
                 "cameras that move, and backgrounds");
  CheckPictures(reader, c);
  return c;
}

void TaskConfig::MakePathsAbsolute(config::Document& document) {
  for (const char* const key : {"task.mjcf", "task.suite_folder",
                                "task.distractions.background.folder"}) {
    config::MakeAbsolute(document, key);
  }
}

MjModelPtr LoadConfiguredModel(const TaskRegistry& registry,
                               const TaskConfig& config) {
  return LoadModel(registry.Find(config.name),
                   {.mjcf = config.mjcf, .suite_folder = config.suite_folder});
}

std::vector<std::unique_ptr<Environment>> MakeConfiguredEnvironments(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t first_index, int64_t count) {
  const TaskDefinition& task = registry.Find(config.name);
  if (!task.make_environment) {
    return MakeConfiguredEnvironments(registry, config,
                                      *LoadConfiguredModel(registry, config),
                                      seed, first_index, count);
  }
  if (const auto [key, allowed] = KeyOfASimulation(config); !key.empty()) {
    throw ConfigError(
        fmt::format("{}: {} is not a MuJoCo simulation; allowed: {}", key,
                    config.name, allowed));
  }
  std::vector<std::unique_ptr<Environment>> environments;
  for (int64_t i = 0; i < count; ++i) {
    auto one = Wrapped(
        config, seed, first_index + i,
        task.make_environment({.seed = seed, .index = first_index + i}));
    CheckImages(config, one->observation_spec());
    if (config.has_pixels) {
      auto pixels =
          std::make_unique<Pixels>(std::move(one), config.pixels.frame_stack);
      ChangePictures(config, nullptr, seed, first_index + i, pixels.get());
      one = std::move(pixels);
    }
    environments.push_back(std::move(one));
  }
  return environments;
}

std::vector<std::unique_ptr<Environment>> MakeConfiguredEnvironments(
    const TaskRegistry& registry, const TaskConfig& config,
    const mjModel& model, uint64_t seed, int64_t first_index, int64_t count) {
  const TaskDefinition& task = registry.Find(config.name);
  EnvironmentOptions options{.seed = seed,
                             .randomization = config.randomization};
  std::vector<std::unique_ptr<Environment>> environments;
  const Pixels* first_pixels = nullptr;
  std::shared_ptr<const Backgrounds> backgrounds;
  if (config.distractions.background.is_enabled) {
    const CameraOptions camera = config.pixels.Cameras()[0];
    backgrounds = std::make_shared<const Backgrounds>(
        config.distractions.background, camera.height, camera.width);
  }
  for (int64_t i = 0; i < count; ++i) {
    options.index = first_index + i;
    std::unique_ptr<Environment> one = Wrapped(
        config, seed, options.index, MakeEnvironment(task, options, model));
    if (config.has_pixels) {
      auto pixels =
          first_pixels == nullptr
              ? MakePixels(config, std::move(one))
              : std::make_unique<Pixels>(std::move(one), *first_pixels);
      ChangePictures(config, backgrounds, seed, options.index, pixels.get());
      if (first_pixels == nullptr) first_pixels = pixels.get();
      one = std::move(pixels);
    }
    environments.push_back(std::move(one));
  }
  return environments;
}

EnvironmentSpec DescribeConfiguredEnvironment(const TaskRegistry& registry,
                                              const TaskConfig& config) {
  TaskConfig blind = config;
  const bool has_cameras =
      config.has_pixels && !registry.Find(config.name).make_environment;
  if (has_cameras) {
    blind.has_pixels = false;
    blind.distractions = {};
  }
  const std::unique_ptr<Environment> one =
      MakeConfiguredEnvironment(registry, blind, /*seed=*/0, /*index=*/0);
  EnvironmentSpec spec{.observations = one->observation_spec(),
                       .actions = one->action_spec(),
                       .has_unit_rewards = one->HasUnitRewards()};
  if (has_cameras) AddPixels(config.pixels, &spec.observations);
  return spec;
}

std::unique_ptr<Environment> MakeConfiguredEnvironment(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t index) {
  return std::move(
      MakeConfiguredEnvironments(registry, config, seed, index, 1)[0]);
}

}  // namespace replicant::env
