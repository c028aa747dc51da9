#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/scalar_program.h"
#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {

// A scalar program for short runs of f32 elements. Each instruction goes over
// the whole run before the next one starts, so that intermediate values stay in
// the first-level cache.
//
// Truth values and small integers (bool, u8) are held as floats, which
// represent them exactly. So is bf16: a result is rounded to it as it is
// computed, except the last one, which the caller rounds when it stores it.
// CanRun() tells which programs qualify.
//
// Thread-safety: Run() may be called concurrently with different workspaces.
class TileProgram {
 public:
  // Maximum number of elements of a run.
  static constexpr size_t kTileSize = 1024;

  // Whether every value of the program fits a float: results f32, bf16 or bool.
  static bool CanRun(const graph::ScalarProgram& program);

  // An empty program, which does nothing.
  TileProgram() = default;
  // Requires CanRun(program) (checked).
  explicit TileProgram(const graph::ScalarProgram& program);

  bool is_empty() const { return steps_.empty(); }
  // Floats of intermediate values that Run() needs.
  size_t workspace_size() const { return num_slots_ * kTileSize; }

  // Computes n <= kTileSize elements (checked). inputs[k] is input k's run of n
  // floats; `out` may be one of them.
  void Run(const float* const* inputs, float* out, size_t n,
           float* workspace) const;
  // Computes any number of elements of a single input, in place.
  void RunInPlace(float* x, int64_t n, float* workspace) const;

 private:
  // One instruction. An operand is an input or a slot of the workspace.
  struct Operand {
    bool is_input = true;
    size_t number = 0;
  };
  struct Step {
    VectorFunction function = nullptr;
    Operand operands[3];
    float p = 0.0f;
    float q = 0.0f;
    // slot of the result; the last instruction writes to `out`
    size_t slot = 0;
  };

  std::vector<Step> steps_;
  size_t num_slots_ = 0;
};

}  // namespace replicant::kernels::cpu
