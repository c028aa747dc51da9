#include "engine/kernels/cuda/elementwise_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

// made of elementwise_prelude.h
#include <elementwise_prelude.inc>

namespace replicant::kernels::cuda {
namespace {

using graph::ScalarProgram;
using graph::TensorType;

// The output's axes, outermost first, merged where every input allows it, and
// the strides of each input along them: 0 where it is broadcast.
struct Box {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // by input, by axis
};

std::vector<int64_t> BroadcastStrides(const Shape& input, const Shape& output) {
  std::vector<int64_t> result(static_cast<size_t>(output.rank()), 0);
  const Shape::Strides strides = input.RowMajorStrides();
  const int missing = output.rank() - input.rank();
  for (int axis = missing; axis < output.rank(); ++axis) {
    const int own = axis - missing;
    if (input[own] != 1) {
      result[static_cast<size_t>(axis)] = strides[static_cast<size_t>(own)];
    }
  }
  return result;
}

Box MakeBox(std::span<const TensorType> inputs, const Shape& output) {
  std::vector<std::vector<int64_t>> full;
  for (const TensorType& input : inputs) {
    full.push_back(BroadcastStrides(input.shape, output));
  }
  Box box{.sizes = {}, .strides = {inputs.size(), std::vector<int64_t>{}}};
  for (int i = 0; i < output.rank(); ++i) {
    if (output[i] == 1) continue;
    const auto axis = static_cast<size_t>(i);
    // an axis joins the one before it if stepping over its end is a step there
    bool joins = !box.sizes.empty();
    for (size_t k = 0; joins && k < inputs.size(); ++k) {
      joins = box.strides[k].back() == full[k][axis] * output[i];
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (joins) {
        box.strides[k].back() = full[k][axis];
      } else {
        box.strides[k].push_back(full[k][axis]);
      }
    }
    if (joins) {
      box.sizes.back() *= output[i];
    } else {
      box.sizes.push_back(output[i]);
    }
  }
  return box;
}

// Bytes that a thread loads at once.
constexpr int64_t kPackBytes = 16;

// Whether neighbours of the output along the last axis are neighbours of input
// k, and not one element.
bool IsPacked(const Box& box, size_t k) {
  return !box.sizes.empty() && box.strides[k].back() == 1;
}

// The most neighbours that are a pack in the output and in every input.
int64_t LanesOf(const Box& box, std::span<const TensorType> inputs,
                const TensorType& output) {
  if (box.sizes.empty()) return 1;
  size_t largest = DTypeSize(output.dtype);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (IsPacked(box, k)) {
      largest = std::max(largest, DTypeSize(inputs[k].dtype));
    } else if (box.strides[k].back() != 0) {
      return 1;
    }
  }
  const int64_t lanes =
      std::min<int64_t>(8, kPackBytes / static_cast<int64_t>(largest));
  if (box.sizes.back() % lanes != 0) return 1;
  for (size_t k = 0; k < inputs.size(); ++k) {
    for (size_t axis = 0; IsPacked(box, k) && axis + 1 < box.sizes.size();
         ++axis) {
      if (box.strides[k][axis] % lanes != 0) return 1;
    }
  }
  return lanes;
}

// The place of input k for element `at`, by the indices i<axis> of the box.
std::string OffsetOf(const Box& box, size_t k) {
  const std::vector<int64_t>& strides = box.strides[k];
  // one axis: the input goes along with the output, or stays
  if (strides.size() < 2) {
    return strides.empty() || strides[0] == 0 ? "0" : "at";
  }
  std::string offset;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (strides[axis] == 0) continue;
    if (!offset.empty()) offset += " + ";
    offset += fmt::format("i{} * {}LL", axis, strides[axis]);
  }
  return offset.empty() ? "0" : offset;
}

// Declares the indices i<axis> of element `at`.
std::string SourceOfIndices(const Box& box) {
  if (box.sizes.size() < 2) return {};
  std::string text = "  long long rest = at;\n";
  for (size_t axis = box.sizes.size(); axis-- > 1;) {
    text += fmt::format(
        "  const long long i{0} = rest % {1}LL;\n  rest /= {1}LL;\n", axis,
        box.sizes[axis]);
  }
  return text + "  const long long i0 = rest;\n";
}

bool IsWide(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64;
}

std::string Number(double value, bool is_wide) {
  if (std::isnan(value)) return "(INF - INF)";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  return is_wide ? fmt::format("{:a}", value)
                 : fmt::format("{:a}f", static_cast<float>(value));
}

// The expression of one instruction, rounded to its dtype.
std::string Expression(const ScalarProgram::Instruction& instruction,
                       const std::vector<DType>& values) {
  const int arity = graph::ScalarOpArity(instruction.op);
  bool is_wide = IsWide(instruction.dtype);
  for (int k = 0; k < arity; ++k) {
    const auto operand = instruction.operands[static_cast<size_t>(k)];
    is_wide = is_wide || IsWide(values[static_cast<size_t>(operand)]);
  }
  std::string arguments;
  for (int k = 0; k < arity; ++k) {
    arguments += fmt::format("{}v{}", k > 0 ? ", " : "",
                             instruction.operands[static_cast<size_t>(k)]);
  }
  const int parameters = graph::ScalarOpParameters(instruction.op);
  if (parameters > 0) arguments += ", " + Number(instruction.p, is_wide);
  if (parameters > 1) arguments += ", " + Number(instruction.q, is_wide);
  return fmt::format("Round_{}({}<{}>({}))", DTypeName(instruction.dtype),
                     graph::ScalarOpName(instruction.op),
                     is_wide ? "double" : "float", arguments);
}

}  // namespace

GeneratedSource ElementwiseSource(const ScalarProgram& program,
                                  std::span<const TensorType> inputs,
                                  const TensorType& output) {
  const Box box = MakeBox(inputs, output.shape);
  const int64_t lanes = LanesOf(box, inputs, output);
  const auto pack = [lanes](DType dtype) {
    return fmt::format("Pack<Element_{}, {}>", DTypeName(dtype), lanes);
  };
  std::string source = reinterpret_cast<const char*>(kElementwisePrelude);
  source += fmt::format("\nELEMENTWISE_KERNEL({}) {{\n", kElementwiseFunction);
  source += fmt::format("  const long long at = i * {};\n", lanes);
  source += SourceOfIndices(box);
  std::string loads;
  std::vector<DType> values;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const DType dtype = inputs[k].dtype;
    const std::string offset = OffsetOf(box, k);
    if (IsPacked(box, k)) {
      source +=
          fmt::format("  const auto x{0} = {1}::At(a.inputs[{0}], {2});\n", k,
                      pack(dtype), offset);
      loads +=
          fmt::format("    const auto v{0} = Load_{1}(x{0}.values, lane);\n", k,
                      DTypeName(dtype));
    } else {
      source +=
          fmt::format("  const auto v{0} = Load_{1}(a.inputs[{0}], {2});\n", k,
                      DTypeName(dtype), offset);
    }
    values.push_back(dtype);
  }
  source += fmt::format(
      "  {} y;\n  UNROLL\n  for (int lane = 0; lane < {}; ++lane) {{\n",
      pack(output.dtype), lanes);
  source += loads;
  for (const ScalarProgram::Instruction& instruction : program.instructions) {
    source += fmt::format("    const auto v{} = {};\n", values.size(),
                          Expression(instruction, values));
    values.push_back(instruction.dtype);
  }
  source += fmt::format(
      "    Store_{}(y.values, lane, v{});\n  }}\n  y.StoreAt(a.output, "
      "at);\n}}\n",
      DTypeName(output.dtype), values.size() - 1);
  return {.text = std::move(source), .lanes = lanes};
}

}  // namespace replicant::kernels::cuda
