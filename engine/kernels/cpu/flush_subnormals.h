#pragma once

namespace replicant::kernels::cpu {

// Treats floats below 2^-126 as 0, as operands and as results, on its thread
// and in the thread's loops (base/parallel.h) while the object lives.
// Processors are a hundred times slower on such numbers, and training produces
// them: an optimizer's moments of a weight without gradients decay until they
// are subnormal, and stay so.
class FlushSubnormals {
 public:
  FlushSubnormals();
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned control_;  // the thread's previous floating-point settings
};

}  // namespace replicant::kernels::cpu
