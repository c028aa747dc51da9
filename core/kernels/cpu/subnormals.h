#pragma once

namespace replicant::kernels::cpu {

// While one lives, its thread and from then on the OpenMP team of its thread
// take floats below 2^-126 for 0, as operands and as results. Processors work
// on such numbers a hundred times slower, and training makes them by itself:
// an optimizer's moments of a weight whose gradients have ended fall until they
// are there, and stay.
class FlushSubnormals {
 public:
  explicit FlushSubnormals(int num_threads);
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned control_;  // the thread's floating-point settings before
};

}  // namespace replicant::kernels::cpu
