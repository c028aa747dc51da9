#include "env/pixels.h"

#include <utility>

#include "core/base/error.h"

namespace replicant::env {

Pixels::Pixels(std::unique_ptr<Environment> environment,
               const PixelOptions& options)
    : EnvironmentWrapper(std::move(environment)),
      camera_(inner().physics(), options.camera),
      stack_(int64_t{camera_.height()} * camera_.width(), options.frame_stack),
      spec_(inner().observation_spec()) {
  if (spec_.pixels_size() != 0) {
    throw InvalidArgument("Pixels: the environment has pixels already");
  }
  spec_.arrays.push_back({.name = "pixels",
                          .shape = Shape({camera_.height(), camera_.width(),
                                          3 * options.frame_stack}),
                          .dtype = DType::kU8});
}

TimeStep Pixels::Reset(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Pixels");
  const TimeStep step = inner().Reset({.state = out.state});
  Follow(step);
  WritePixels(out.pixels);
  return step;
}

TimeStep Pixels::Step(std::span<const double> action,
                      const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Pixels");
  const TimeStep step = inner().Step(action, {.state = out.state});
  Follow(step);
  WritePixels(out.pixels);
  return step;
}

void Pixels::Observe(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Pixels");
  inner().Observe({.state = out.state});
  WritePixels(out.pixels);
}

void Pixels::Follow(const TimeStep& step) {
  if (step.IsFirst()) {
    content_ = Content::kOtherEpisode;
    if (ResetChangesAssets()) camera_.ReloadAssets(physics());
  } else if (content_ == Content::kPresent) {
    content_ = Content::kOlder;
  }
}

void Pixels::WritePixels(std::span<uint8_t> out) {
  if (out.empty()) return;
  if (content_ != Content::kPresent) {
    camera_.Render(mutable_physics(), stack_.frame());
    if (content_ == Content::kOtherEpisode) {
      stack_.Fill();
    } else {
      stack_.Push();
    }
    content_ = Content::kPresent;
  }
  stack_.CopyTo(out);
}

}  // namespace replicant::env
