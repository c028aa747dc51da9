#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/graph/scalar_program.h"
#include "core/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {

// A scalar program made ready to run on short runs of f32 elements, one
// instruction after the other over all of a run, so that what passes between
// instructions stays in the first-level cache.
//
// Truth values and small integers (bool, u8) pass as floats, which hold them
// exactly, and so does bf16, to which a result is rounded on its way; the last
// one is rounded by who stores it. CanRun() says which programs that leaves.
//
// Thread-safety: Run() may be called at once with different workspaces.
class TileProgram {
 public:
  // Elements of a run at most.
  static constexpr size_t kTileSize = 1024;

  // Whether every value of the program fits a float: results f32, bf16 or bool.
  static bool CanRun(const graph::ScalarProgram& program);

  // The program does nothing until it is given one.
  TileProgram() = default;
  // CanRun(program) (checked).
  explicit TileProgram(const graph::ScalarProgram& program);

  bool is_empty() const { return steps_.empty(); }
  // Floats that Run() needs for what passes between instructions.
  size_t workspace_size() const { return num_slots_ * kTileSize; }

  // Computes n <= kTileSize elements (checked). inputs[k] is input k's run of n
  // floats; `out` may be one of them.
  void Run(const float* const* inputs, float* out, size_t n,
           float* workspace) const;
  // The same on any number of elements, of which each is its own only input.
  void RunInPlace(float* x, int64_t n, float* workspace) const;

 private:
  // One instruction; an operand is an input or a slot of the workspace.
  struct Operand {
    bool is_input = true;
    size_t number = 0;
  };
  struct Step {
    VectorFunction function = nullptr;
    Operand operands[3];
    float p = 0.0f;
    float q = 0.0f;
    // where the result goes; the last one's goes out
    size_t slot = 0;
  };

  std::vector<Step> steps_;
  size_t num_slots_ = 0;
};

}  // namespace replicant::kernels::cpu
