#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/kernels/backend.h"

namespace replicant::runtime {

// The launches of a plan, in order.
//
// Stretches of launches that the device can run as one (Kernel::CanRecord())
// are recorded when the sequence is launched for the second time, and launched
// whole from then on. In the first launch libraries load code and memory, which
// a recording forbids; a plan that runs once is never recorded.
//
// A stretch joins what it forks (Kernel::open_forks()). If work of the host
// lies between a fork and its join, the forks and joins around that work are
// launched separately.
//
// Thread-safety: one thread at a time.
class LaunchSequence {
 public:
  // The backend outlives the sequence, and so do the kernels.
  explicit LaunchSequence(kernels::Backend* backend) : backend_(*backend) {}

  // Both before the first Launch().
  void Add(kernels::Kernel* kernel);
  // Adds copies of device memory, from and to Backend::AllocateHost().
  void AddCopies(std::function<void(kernels::Stream&)> copy);

  // Queues everything. Throws DeviceError.
  void Launch(kernels::Stream& stream);

 private:
  struct Entry {
    std::function<void(kernels::Stream&)> launch;
    bool can_record = false;
    int open_forks = 0;
  };
  // Neighbours in the sequence, of which all can be recorded or none.
  struct Stretch {
    std::span<Entry> entries;
    std::unique_ptr<kernels::Recording> recording = nullptr;
  };

  std::vector<std::span<Entry>> Stretches();
  void Divide();
  void Record(Stretch* stretch, kernels::Stream& stream);

  kernels::Backend& backend_;
  std::vector<Entry> entries_;
  // of the entries, from the first launch on
  std::vector<Stretch> stretches_;
  bool has_run_ = false;
  // cleared where the backend records nothing
  bool may_record_ = true;
};

}  // namespace replicant::runtime
