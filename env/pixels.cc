#include "env/pixels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace replicant::env {

namespace {

constexpr const char* kArray = "pixels";

int64_t NumPixels(const Camera& camera) {
  return int64_t{camera.height()} * camera.width();
}

// The name of the array of each camera.
std::vector<std::string> ArraysOf(const PixelOptions& options) {
  const std::vector<CameraOptions> cameras = options.Cameras();
  if (cameras.size() == 1) return {kArray};
  std::vector<std::string> names;
  names.reserve(cameras.size());
  for (const CameraOptions& camera : cameras) {
    names.push_back(fmt::format("{}/{}", kArray, camera.camera));
  }
  return names;
}

}  // namespace

void AddPixels(const PixelOptions& options, ObservationSpec* spec) {
  if (spec->pixels_size() != 0) {
    throw InvalidArgument("Pixels: the environment already has pixels");
  }
  const std::vector<CameraOptions> cameras = options.Cameras();
  const std::vector<std::string> names = ArraysOf(options);
  for (size_t i = 0; i < cameras.size(); ++i) {
    if (std::ranges::count(spec->arrays, names[i], &ArraySpec::name) > 0) {
      throw InvalidArgument(
          fmt::format("Pixels: two arrays '{}'; want each camera once, and no "
                      "array of the task with the name of a camera's",
                      names[i]));
    }
    const int64_t height = cameras[i].height, width = cameras[i].width;
    spec->arrays.push_back(
        {.name = names[i],
         .shape = Shape({height, width, int64_t{3} * options.frame_stack}),
         .dtype = DType::kU8});
    spec->frame_size += 3 * height * width;
  }
}

Pixels::Pixels(std::unique_ptr<Environment> environment,
               const PixelOptions& options)
    : EnvironmentWrapper(std::move(environment)),
      options_(options),
      spec_(inner().observation_spec()) {
  const std::vector<CameraOptions> cameras = options_.Cameras();
  const std::vector<std::string> names = ArraysOf(options_);
  for (size_t i = 0; i < cameras.size(); ++i) {
    // all share the first one's assets
    Camera camera = views_.empty() ? Camera(inner().physics(), cameras[i])
                                   : Camera(*views_[0].camera,
                                            inner().physics(), cameras[i]);
    FrameStack stack(NumPixels(camera), options_.frame_stack);
    views_.push_back({.array = names[i],
                      .camera = std::move(camera),
                      .stack = std::move(stack)});
  }
  AddPixels(options_, &spec_);
}

Pixels::Pixels(std::unique_ptr<Environment> environment, const Pixels& sibling)
    : EnvironmentWrapper(std::move(environment)),
      options_(sibling.options_),
      spec_(inner().observation_spec()) {
  for (const View& view : sibling.views_) {
    views_.push_back(
        {.array = view.array,
         .camera = Camera(*view.camera, inner().physics()),
         .stack = FrameStack(NumPixels(*view.camera), options_.frame_stack)});
  }
  AddPixels(options_, &spec_);
}

Pixels::Pixels(std::unique_ptr<Environment> environment, int frame_stack)
    : EnvironmentWrapper(std::move(environment)),
      own_frame_(static_cast<size_t>(inner().observation_spec().frame_size)),
      spec_(inner().observation_spec()) {
  for (ArraySpec& array : spec_.arrays) {
    if (array.dtype != DType::kU8) continue;
    if (array.shape.rank() != 3) {
      throw InvalidArgument(
          fmt::format("Pixels: array '{}' is {}, want an image [H,W,C]",
                      array.name, array.shape.ToString()));
    }
    const int64_t height = array.shape[0], width = array.shape[1];
    const int64_t channels = array.shape[2];
    views_.push_back(
        {.array = array.name,
         .camera = std::nullopt,
         .stack = FrameStack(height * width, frame_stack, channels)});
    array.shape = Shape({height, width, channels * frame_stack});
  }
  if (views_.empty()) {
    throw InvalidArgument("Pixels: the environment has no image");
  }
}

void Pixels::Distract(const DistractionConfig& config,
                      std::shared_ptr<const Backgrounds> backgrounds,
                      const RandomStream& random) {
  std::vector<int> cameras;
  for (const View& view : views_) cameras.push_back(view.camera->id());
  distractions_.emplace(config, std::move(backgrounds), inner().physics(),
                        cameras, random);
}

void Pixels::Disturb(const FrameDisturbanceConfig& config,
                     const RandomStream& random) {
  for (View& view : views_) {
    view.disturbances.emplace(config, random.Substream(view.array),
                              view.stack.frame().size());
  }
}

TimeStep Pixels::Reset(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Pixels");
  const TimeStep step = inner().Reset({.state = out.state});
  Follow(step);
  WritePixels(out);
  return step;
}

TimeStep Pixels::Step(std::span<const double> action,
                      const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Pixels");
  const TimeStep step = inner().Step(action, {.state = out.state});
  Follow(step);
  WritePixels(out);
  return step;
}

void Pixels::Observe(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Pixels");
  inner().Observe({.state = out.state});
  WritePixels(out);
}

void Pixels::Follow(const TimeStep& step) {
  if (step.IsFirst()) {
    content_ = Content::kOtherEpisode;
    const int64_t episode = counters().episodes - 1;
    if (distractions_) distractions_->Begin(physics(), episode);
    for (View& view : views_) {
      if (view.disturbances) view.disturbances->Begin(episode);
    }
    if (!ResetChangesAssets()) return;
    for (View& view : views_) {
      if (view.camera) view.camera->ReloadAssets(physics());
    }
    return;
  }
  if (distractions_) distractions_->Step();
  if (content_ == Content::kPresent) content_ = Content::kOlder;
}

void Pixels::Draw() {
  if (!own_frame_.empty()) inner().Observe({.frame = own_frame_});
  std::span<const uint8_t> own = own_frame_;
  for (size_t i = 0; i < views_.size(); ++i) {
    View& view = views_[i];
    const std::span<uint8_t> frame = view.stack.frame();
    if (view.camera) {
      CameraView seen;
      if (distractions_) {
        seen = distractions_->View(i, physics(), view.camera->height(),
                                   view.camera->width());
      }
      view.camera->Render(mutable_physics(), frame, seen);
    } else {
      std::ranges::copy(own.first(frame.size()), frame.begin());
      own = own.subspan(frame.size());
    }
    if (view.disturbances) view.disturbances->Apply(frame);
    if (content_ == Content::kOtherEpisode) {
      view.stack.Fill();
    } else {
      view.stack.Push();
    }
  }
}

void Pixels::WritePixels(const ObservationBuffer& out) {
  if (out.pixels.empty() && out.frame.empty()) return;
  if (content_ != Content::kPresent) {
    Draw();
    content_ = Content::kPresent;
  }
  std::span<uint8_t> pixels = out.pixels;
  std::span<uint8_t> frame = out.frame;
  for (const View& view : views_) {
    const std::span<const uint8_t> newest = view.stack.newest();
    if (!out.pixels.empty()) {
      const size_t size = newest.size() * view.stack.depth();
      view.stack.CopyTo(pixels.first(size));
      pixels = pixels.subspan(size);
    }
    if (!out.frame.empty()) {
      std::ranges::copy(newest, frame.begin());
      frame = frame.subspan(newest.size());
    }
  }
}

}  // namespace replicant::env
