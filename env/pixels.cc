#include "env/pixels.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace replicant::env {

namespace {

ObservationSpec MakeSpec(ObservationSpec spec, const Camera& camera,
                         int frame_stack) {
  if (spec.pixels_size() != 0) {
    throw InvalidArgument("Pixels: the environment already has pixels");
  }
  spec.arrays.push_back(
      {.name = "pixels",
       .shape = Shape({camera.height(), camera.width(), 3 * frame_stack}),
       .dtype = DType::kU8});
  spec.frame_size = int64_t{3} * camera.height() * camera.width();
  return spec;
}

}  // namespace

Pixels::Pixels(std::unique_ptr<Environment> environment,
               const PixelOptions& options)
    : EnvironmentWrapper(std::move(environment)),
      camera_(inner().physics(), options.camera),
      frame_stack_(options.frame_stack),
      stack_(int64_t{camera_.height()} * camera_.width(), frame_stack_),
      spec_(MakeSpec(inner().observation_spec(), camera_, frame_stack_)) {}

Pixels::Pixels(std::unique_ptr<Environment> environment, const Pixels& sibling)
    : EnvironmentWrapper(std::move(environment)),
      camera_(sibling.camera_, inner().physics()),
      frame_stack_(sibling.frame_stack_),
      stack_(int64_t{camera_.height()} * camera_.width(), frame_stack_),
      spec_(MakeSpec(inner().observation_spec(), camera_, frame_stack_)) {}

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
    if (ResetChangesAssets()) camera_.ReloadAssets(physics());
  } else if (content_ == Content::kPresent) {
    content_ = Content::kOlder;
  }
}

void Pixels::WritePixels(const ObservationBuffer& out) {
  if (out.pixels.empty() && out.frame.empty()) return;
  if (content_ != Content::kPresent) {
    camera_.Render(mutable_physics(), stack_.frame());
    if (content_ == Content::kOtherEpisode) {
      stack_.Fill();
    } else {
      stack_.Push();
    }
    content_ = Content::kPresent;
  }
  if (!out.pixels.empty()) stack_.CopyTo(out.pixels);
  std::copy_n(stack_.newest().begin(), out.frame.size(), out.frame.begin());
}

}  // namespace replicant::env
