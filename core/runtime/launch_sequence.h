#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/kernels/backend.h"

namespace replicant::runtime {

// The launches of a plan, in order.
//
// Stretches of launches that the device can run as one (Kernel::CanRecord())
// are recorded when the sequence is launched for the second time, and launched
// whole from then on. The first time loads what libraries load at a first call,
// which a recording forbids; a plan that runs once is never recorded.
//
// Thread-safety: one thread at a time.
class LaunchSequence {
 public:
  // The backend outlives the sequence, and so do the kernels.
  explicit LaunchSequence(kernels::Backend* backend) : backend_(*backend) {}

  void Add(kernels::Kernel* kernel);
  // Adds copies of device memory, from and to Backend::AllocateHost().
  void AddCopies(std::function<void(kernels::Stream&)> copy);

  // Queues everything. Throws DeviceError.
  void Launch(kernels::Stream& stream);

 private:
  using LaunchFunction = std::function<void(kernels::Stream&)>;
  struct Stretch {
    bool can_record = false;
    std::vector<LaunchFunction> launches = {};
    std::unique_ptr<kernels::Recording> recording = nullptr;
  };

  void AddLaunch(LaunchFunction launch, bool can_record);
  void Record(Stretch* stretch, kernels::Stream& stream);

  kernels::Backend& backend_;
  std::vector<Stretch> stretches_;
  bool has_run_ = false;
  // cleared where the backend records nothing
  bool may_record_ = true;
};

}  // namespace replicant::runtime
