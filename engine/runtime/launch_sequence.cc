#include "engine/runtime/launch_sequence.h"

#include <utility>

namespace replicant::runtime {

void LaunchSequence::Add(kernels::Kernel* kernel) {
  entries_.push_back(
      {.launch = [kernel](kernels::Stream& stream) { kernel->Launch(stream); },
       .can_record = kernel->CanRecord(),
       .open_forks = kernel->open_forks()});
}

void LaunchSequence::AddCopies(std::function<void(kernels::Stream&)> copy) {
  entries_.push_back({.launch = std::move(copy), .can_record = true});
}

std::vector<std::span<LaunchSequence::Entry>> LaunchSequence::Stretches() {
  std::vector<std::span<Entry>> stretches;
  for (size_t begin = 0, end = 0; begin < entries_.size(); begin = end) {
    while (end < entries_.size() &&
           entries_[end].can_record == entries_[begin].can_record) {
      ++end;
    }
    stretches.push_back(std::span(entries_).subspan(begin, end - begin));
  }
  return stretches;
}

void LaunchSequence::Divide() {
  // take forks out of stretches that do not join them
  for (const std::span<Entry> stretch : Stretches()) {
    int open = 0;
    bool joins_all = true;
    for (const Entry& entry : stretch) {
      open += entry.open_forks;
      joins_all = joins_all && open >= 0;
    }
    if (joins_all && open == 0) continue;
    for (Entry& entry : stretch) {
      if (entry.open_forks != 0) entry.can_record = false;
    }
  }
  for (const std::span<Entry> stretch : Stretches()) {
    stretches_.push_back({.entries = stretch});
  }
}

void LaunchSequence::Launch(kernels::Stream& stream) {
  if (stretches_.empty()) Divide();
  for (Stretch& stretch : stretches_) {
    if (has_run_ && may_record_ && stretch.recording == nullptr) {
      Record(&stretch, stream);
    }
    if (stretch.recording != nullptr) {
      stretch.recording->Launch(stream);
      continue;
    }
    for (const Entry& entry : stretch.entries) entry.launch(stream);
  }
  has_run_ = true;
}

void LaunchSequence::Record(Stretch* stretch, kernels::Stream& stream) {
  // a recording of one launch saves nothing
  if (!stretch->entries[0].can_record || stretch->entries.size() < 2) return;
  stretch->recording = backend_.Record(stream, [stretch, &stream] {
    for (const Entry& entry : stretch->entries) entry.launch(stream);
  });
  may_record_ = stretch->recording != nullptr;
}

}  // namespace replicant::runtime
