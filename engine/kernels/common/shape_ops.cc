#include <algorithm>
#include <cstring>

#include "engine/kernels/common/element.h"
#include "engine/kernels/common/host_kernel.h"

// Kernels that move elements. They know sizes, not dtypes.
namespace replicant::kernels {
namespace {

// Output 0 becomes a copy of one of the inputs.
RunFunction MakeCopyOf(const KernelRequest& request, size_t input) {
  const size_t size_bytes = request.output().SizeBytes();
  return [size_bytes, input](const Operands& operands) {
    // an empty tensor may have no address; a shared one needs no copy
    if (size_bytes > 0 && operands.outputs[0] != operands.inputs[input]) {
      std::memcpy(operands.outputs[0], operands.inputs[input], size_bytes);
    }
  };
}

RunFunction MakeCopy(const KernelRequest& request) {
  return MakeCopyOf(request, 0);
}

// inputs: the version to replace, the new value
RunFunction MakeAssign(const KernelRequest& request) {
  return MakeCopyOf(request, 1);
}

// Copies every element of a box of `shape`, from source + sum index * from to
// target + sum index * to. Strides and offsets count elements.
struct BoxCopy {
  Shape shape;
  Shape::Strides from{};
  Shape::Strides to{};
  int64_t from_offset = 0;
  int64_t to_offset = 0;
  size_t element_size_bytes = 0;

  void Run(const std::byte* source, std::byte* target) const {
    // copy the last axis at once if it is contiguous on both sides
    const auto last = static_cast<size_t>(std::max(0, shape.rank() - 1));
    const bool has_runs = shape.rank() > 0 && from[last] == 1 && to[last] == 1;
    const int64_t run = has_runs ? shape[shape.rank() - 1] : 1;
    if (run == 0) return;
    const size_t run_bytes = static_cast<size_t>(run) * element_size_bytes;
    for (int64_t i = 0; i < shape.num_elements() / run; ++i) {
      int64_t rest = i;
      int64_t read = from_offset;
      int64_t write = to_offset;
      for (int axis = shape.rank() - (has_runs ? 2 : 1); axis >= 0; --axis) {
        const int64_t index = rest % shape[axis];
        rest /= shape[axis];
        read += index * from[static_cast<size_t>(axis)];
        write += index * to[static_cast<size_t>(axis)];
      }
      std::memcpy(target + static_cast<size_t>(write) * element_size_bytes,
                  source + static_cast<size_t>(read) * element_size_bytes,
                  run_bytes);
    }
  }
};

int64_t OffsetOf(const std::vector<int64_t>& begin,
                 const Shape::Strides& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < begin.size(); ++i) offset += begin[i] * strides[i];
  return offset;
}

RunFunction MakeTranspose(const KernelRequest& request) {
  const auto& permutation = request.node.attributes.Ints("permutation");
  const Shape::Strides strides = request.input(0).shape.RowMajorStrides();
  BoxCopy copy{.shape = request.output().shape,
               .to = request.output().shape.RowMajorStrides(),
               .element_size_bytes = DTypeSize(request.output().dtype)};
  for (size_t i = 0; i < permutation.size(); ++i) {
    copy.from[i] = strides[static_cast<size_t>(permutation[i])];
  }
  return [copy](const Operands& operands) {
    copy.Run(operands.inputs[0], operands.outputs[0]);
  };
}

RunFunction MakeConcat(const KernelRequest& request) {
  const auto axis = static_cast<size_t>(request.node.attributes.Int("axis"));
  const Shape::Strides to = request.output().shape.RowMajorStrides();
  std::vector<BoxCopy> copies;
  int64_t begin = 0;
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    const Shape& shape = request.input(i).shape;
    copies.push_back({.shape = shape,
                      .from = shape.RowMajorStrides(),
                      .to = to,
                      .to_offset = begin * to[axis],
                      .element_size_bytes = DTypeSize(request.output().dtype)});
    begin += shape[static_cast<int>(axis)];
  }
  return [copies](const Operands& operands) {
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].Run(operands.inputs[i], operands.outputs[0]);
    }
  };
}

RunFunction MakeSlice(const KernelRequest& request) {
  const Shape::Strides from = request.input(0).shape.RowMajorStrides();
  const BoxCopy copy{
      .shape = request.output().shape,
      .from = from,
      .to = request.output().shape.RowMajorStrides(),
      .from_offset = OffsetOf(request.node.attributes.Ints("begin"), from),
      .element_size_bytes = DTypeSize(request.output().dtype)};
  return [copy](const Operands& operands) {
    copy.Run(operands.inputs[0], operands.outputs[0]);
  };
}

RunFunction MakePad(const KernelRequest& request) {
  const graph::TensorType output = request.output();
  const double value = request.node.attributes.Float("value");
  const Shape::Strides to = output.shape.RowMajorStrides();
  const BoxCopy copy{
      .shape = request.input(0).shape,
      .from = request.input(0).shape.RowMajorStrides(),
      .to = to,
      .to_offset = OffsetOf(request.node.attributes.Ints("before"), to),
      .element_size_bytes = DTypeSize(output.dtype)};
  return [copy, output, value](const Operands& operands) {
    for (int64_t i = 0; i < output.shape.num_elements(); ++i) {
      Store(operands.outputs[0], output.dtype, i, value);
    }
    copy.Run(operands.inputs[0], operands.outputs[0]);
  };
}

}  // namespace

void AddShapeKernels(HostKernelTable& table) {
  table.emplace("Reshape", &MakeCopy);
  table.emplace("StopGradient", &MakeCopy);
  table.emplace("Identity", &MakeCopy);
  table.emplace("Assign", &MakeAssign);
  table.emplace("Transpose", &MakeTranspose);
  table.emplace("Concat", &MakeConcat);
  table.emplace("Slice", &MakeSlice);
  table.emplace("Pad", &MakePad);
}

}  // namespace replicant::kernels
