#include "core/runtime/launch_sequence.h"

#include <utility>

namespace replicant::runtime {

void LaunchSequence::Add(kernels::Kernel* kernel) {
  AddLaunch([kernel](kernels::Stream& stream) { kernel->Launch(stream); },
            kernel->CanRecord());
}

void LaunchSequence::AddCopies(std::function<void(kernels::Stream&)> copy) {
  AddLaunch(std::move(copy), /*can_record=*/true);
}

void LaunchSequence::AddLaunch(LaunchFunction launch, bool can_record) {
  if (stretches_.empty() || stretches_.back().can_record != can_record) {
    stretches_.push_back({.can_record = can_record});
  }
  stretches_.back().launches.push_back(std::move(launch));
}

void LaunchSequence::Launch(kernels::Stream& stream) {
  for (Stretch& stretch : stretches_) {
    if (has_run_ && may_record_ && stretch.recording == nullptr) {
      Record(&stretch, stream);
    }
    if (stretch.recording != nullptr) {
      stretch.recording->Launch(stream);
      continue;
    }
    for (const LaunchFunction& launch : stretch.launches) launch(stream);
  }
  has_run_ = true;
}

void LaunchSequence::Record(Stretch* stretch, kernels::Stream& stream) {
  // a recording of one launch saves nothing
  if (!stretch->can_record || stretch->launches.size() < 2) return;
  stretch->recording = backend_.Record(stream, [stretch, &stream] {
    for (const LaunchFunction& launch : stretch->launches) launch(stream);
  });
  may_record_ = stretch->recording != nullptr;
}

}  // namespace replicant::runtime
