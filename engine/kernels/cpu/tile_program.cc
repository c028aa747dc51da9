#include "engine/kernels/cpu/tile_program.h"

#include <algorithm>

#include "base/check.h"

namespace replicant::kernels::cpu {

using graph::ScalarProgram;

bool TileProgram::CanRun(const ScalarProgram& program) {
  for (const ScalarProgram::Instruction& instruction : program.instructions) {
    if (instruction.dtype != DType::kF32 && instruction.dtype != DType::kBF16 &&
        instruction.dtype != DType::kBool) {
      return false;
    }
  }
  return true;
}

TileProgram::TileProgram(const ScalarProgram& program) {
  REPLICANT_CHECK(CanRun(program), "{}", program.ToString());
  const auto num_inputs = static_cast<size_t>(program.num_inputs);
  // the last instruction that uses a value
  std::vector<size_t> last_use(num_inputs + program.instructions.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const auto& instruction = program.instructions[i];
    for (int k = 0; k < graph::ScalarOpArity(instruction.op); ++k) {
      last_use[static_cast<size_t>(
          instruction.operands[static_cast<size_t>(k)])] = i;
    }
  }

  std::vector<size_t> slot_of(last_use.size());
  std::vector<size_t> free_slots;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const auto& instruction = program.instructions[i];
    Step step{.function = FindVectorFunction(instruction.op),
              .p = static_cast<float>(instruction.p),
              .q = static_cast<float>(instruction.q)};
    // converting to bool is comparing with 0
    if (instruction.op == graph::ScalarOp::kCopy &&
        instruction.dtype == DType::kBool) {
      step.function = FindVectorFunction(graph::ScalarOp::kOr);
    }
    for (size_t k = 0; k < 3; ++k) {
      const auto value = static_cast<size_t>(
          instruction.operands[k < static_cast<size_t>(
                                       graph::ScalarOpArity(instruction.op))
                                   ? k
                                   : 0]);
      step.operands[k] = {
          .is_input = value < num_inputs,
          .number = value < num_inputs ? value : slot_of[value]};
      // release it once, though an instruction may use a value twice
      if (value >= num_inputs && last_use[value] == i) {
        free_slots.push_back(slot_of[value]);
        last_use[value] = SIZE_MAX;
      }
    }
    if (free_slots.empty()) free_slots.push_back(num_slots_++);
    // a result may overwrite an operand: the functions allow it
    step.slot = free_slots.back();
    free_slots.pop_back();
    slot_of[num_inputs + i] = step.slot;
    steps_.push_back(step);
    if (instruction.dtype == DType::kBF16 &&
        i + 1 < program.instructions.size()) {
      const Operand rounded{.is_input = false, .number = step.slot};
      steps_.push_back({.function = BF16RoundingFunction(),
                        .operands = {rounded, rounded, rounded},
                        .slot = step.slot});
    }
  }
}

void TileProgram::Run(const float* const* inputs, float* out, size_t n,
                      float* workspace) const {
  REPLICANT_CHECK_LE(n, kTileSize);
  for (const Step& step : steps_) {
    const float* operands[3];
    for (size_t k = 0; k < 3; ++k) {
      const Operand& operand = step.operands[k];
      operands[k] = operand.is_input ? inputs[operand.number]
                                     : workspace + operand.number * kTileSize;
    }
    float* result =
        &step == &steps_.back() ? out : workspace + step.slot * kTileSize;
    step.function(operands[0], operands[1], operands[2], step.p, step.q, result,
                  n);
  }
}

void TileProgram::RunInPlace(float* x, int64_t n, float* workspace) const {
  constexpr auto kSize = static_cast<int64_t>(kTileSize);
  for (int64_t begin = 0; begin < n; begin += kSize) {
    const float* input = x + begin;
    Run(&input, x + begin, static_cast<size_t>(std::min(kSize, n - begin)),
        workspace);
  }
}

}  // namespace replicant::kernels::cpu
