#include <array>

#include "engine/graph/scalar_program.h"
#include "engine/kernels/common/element.h"
#include "engine/kernels/common/host_kernel.h"
#include "engine/kernels/common/program.h"

namespace replicant::kernels {
namespace {

using graph::ScalarProgram;

// An input broadcast to the output's shape: stride 0 along broadcast axes.
struct BroadcastInput {
  DType dtype = DType::kF32;
  Shape::Strides strides{};
};

BroadcastInput Broadcast(const graph::TensorType& input, const Shape& shape) {
  BroadcastInput result{.dtype = input.dtype};
  const Shape::Strides strides = input.shape.RowMajorStrides();
  const int missing = shape.rank() - input.shape.rank();
  for (int axis = missing; axis < shape.rank(); ++axis) {
    const int own = axis - missing;
    // an axis of size 1 repeats its one element
    result.strides[static_cast<size_t>(axis)] =
        input.shape[own] == 1 ? 0 : strides[static_cast<size_t>(own)];
  }
  return result;
}

RunFunction MakeElementwise(const KernelRequest& request) {
  const ScalarProgram program = request.node.attributes.Program("program");
  const graph::TensorType output = request.output();
  std::vector<BroadcastInput> inputs;
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    inputs.push_back(Broadcast(request.input(i), output.shape));
  }
  return [program, output, inputs](const Operands& operands) {
    std::array<int64_t, Shape::kMaxRank> index{};
    std::array<double, ScalarProgram::kMaxInputs> values{};
    const int rank = output.shape.rank();
    for (int64_t i = 0; i < output.shape.num_elements(); ++i) {
      for (size_t k = 0; k < inputs.size(); ++k) {
        int64_t offset = 0;
        for (size_t axis = 0; axis < static_cast<size_t>(rank); ++axis) {
          offset += index[axis] * inputs[k].strides[axis];
        }
        values[k] = Load(operands.inputs[k], inputs[k].dtype, offset);
      }
      Store(operands.outputs[0], output.dtype, i,
            EvaluateProgram(program, values));
      // advance the index, last axis fastest
      for (int axis = rank - 1; axis >= 0; --axis) {
        if (++index[static_cast<size_t>(axis)] < output.shape[axis]) break;
        index[static_cast<size_t>(axis)] = 0;
      }
    }
  };
}

}  // namespace

double EvaluateProgram(const ScalarProgram& program,
                       std::span<const double> inputs) {
  std::array<double,
             ScalarProgram::kMaxInputs + ScalarProgram::kMaxInstructions>
      values;
  for (int i = 0; i < program.num_inputs; ++i) {
    values[static_cast<size_t>(i)] = inputs[static_cast<size_t>(i)];
  }
  auto next = static_cast<size_t>(program.num_inputs);
  for (const ScalarProgram::Instruction& instruction : program.instructions) {
    std::array<double, 3> args{};
    for (int k = 0; k < graph::ScalarOpArity(instruction.op); ++k) {
      args[static_cast<size_t>(k)] = values[static_cast<size_t>(
          instruction.operands[static_cast<size_t>(k)])];
    }
    const double result =
        graph::EvaluateScalarOp(instruction.op, args[0], args[1], args[2],
                                instruction.p, instruction.q);
    values[next++] = graph::RoundToDType(result, instruction.dtype);
  }
  return values[next - 1];
}

void AddElementwiseKernels(HostKernelTable& table) {
  for (int i = 0; i < graph::kNumScalarOps; ++i) {
    table.emplace(graph::ScalarOpName(static_cast<graph::ScalarOp>(i)),
                  &MakeElementwise);
  }
  table.emplace("FusedElementwise", &MakeElementwise);
}

}  // namespace replicant::kernels
