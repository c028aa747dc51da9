#pragma once

namespace replicant::kernels::cpu {

// Treats floats below 2^-126 as 0, as operands and as results, on its thread
// and, from then on, on the thread's OpenMP team, while the object lives.
// Processors are a hundred times slower on such numbers, and training produces
// them: an optimizer's moments of a weight without gradients decay until they
// are subnormal, and stay so. The team's other threads block signals, too
// (base/blocked_signals.h); its own thread does in Executor::Start().
class TeamSettings {
 public:
  explicit TeamSettings(int num_threads);
  ~TeamSettings();
  TeamSettings(const TeamSettings&) = delete;
  TeamSettings& operator=(const TeamSettings&) = delete;

 private:
  unsigned control_;  // the thread's previous floating-point settings
};

}  // namespace replicant::kernels::cpu
