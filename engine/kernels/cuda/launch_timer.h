#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/kernels/cuda/device.h"

namespace replicant::kernels::cuda {

// Measures the time that a device takes for work, on a separate stream.
//
// A launch of a few microseconds takes the host longer to issue than the device
// to run. Launches are therefore recorded, as in a step (recorded_graph.h), and
// the graph is launched between two events.
//
// Thread-safety: one thread at a time.
class LaunchTimer {
 public:
  // Queues the same work at each call. Throws DeviceError.
  using LaunchFunction = std::function<void(CUstream)>;

  // Throws DeviceError.
  explicit LaunchTimer(std::shared_ptr<const Device> device);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // Microseconds of one launch: the median of some samples of several launches,
  // after a warm-up. Work that takes far more than `best_us` in the warm-up is
  // not sampled again. nullopt, and the reason in `why`, if the work cannot be
  // launched or not be recorded. Throws DeviceError if the device fails.
  std::optional<double> MedianUs(const LaunchFunction& launch, double best_us,
                                 std::string* why);

 private:
  // Microseconds of all launches of a recording.
  double SampleUs(Recording& recording);
  void Destroy();

  const std::shared_ptr<const Device> device_;
  const std::unique_ptr<Stream> stream_;
  CUevent start_ = nullptr;
  CUevent end_ = nullptr;
};

}  // namespace replicant::kernels::cuda
