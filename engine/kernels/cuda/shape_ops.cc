#include <algorithm>

#include "engine/kernels/common/element.h"
#include "engine/kernels/cuda/cuda_kernels.h"

// Ops that move elements. They know sizes, not dtypes.
namespace replicant::kernels::cuda {
namespace {

void MakeCopy(KernelBuilder& builder) {
  // Reshape may change the shape, but not the order of elements
  builder.ShareElements();
  builder.CopyInput(0);
}

// inputs: the version to replace, the new value
void MakeAssign(KernelBuilder& builder) { builder.CopyInput(1); }

// Adds the copy of the box `shape` from input `input` to output 0.
void AddBox(KernelBuilder& builder, size_t input, const Shape& shape,
            const Shape::Strides& from, const Shape::Strides& to,
            int64_t from_offset, int64_t to_offset) {
  DispatchWord(builder.output().dtype, [&]<typename Word>() {
    BoxCopy<Word> body{.rank = shape.rank(),
                       .from_offset = from_offset,
                       .to_offset = to_offset};
    std::copy_n(shape.dims().begin(), shape.rank(), body.dims);
    std::copy_n(from.begin(), shape.rank(), body.from);
    std::copy_n(to.begin(), shape.rank(), body.to);
    builder.Launch(body, shape.num_elements(),
                   [input](BoxCopy<Word>& b, const KernelBindings& bindings) {
                     b.source = In<Word>(bindings, input);
                     b.target = Out<Word>(bindings);
                   });
  });
}

int64_t OffsetOf(const std::vector<int64_t>& begin,
                 const Shape::Strides& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < begin.size(); ++i) offset += begin[i] * strides[i];
  return offset;
}

void MakeTranspose(KernelBuilder& builder) {
  const auto& permutation = builder.attributes().Ints("permutation");
  const Shape::Strides strides = builder.input().shape.RowMajorStrides();
  Shape::Strides from{};
  for (size_t i = 0; i < permutation.size(); ++i) {
    from[i] = strides[static_cast<size_t>(permutation[i])];
  }
  const Shape& shape = builder.output().shape;
  AddBox(builder, 0, shape, from, shape.RowMajorStrides(), 0, 0);
}

void MakeConcat(KernelBuilder& builder) {
  const auto axis = static_cast<size_t>(builder.attributes().Int("axis"));
  const Shape::Strides to = builder.output().shape.RowMajorStrides();
  int64_t begin = 0;
  for (size_t i = 0; i < builder.node().inputs.size(); ++i) {
    const Shape& shape = builder.input(i).shape;
    AddBox(builder, i, shape, shape.RowMajorStrides(), to, 0, begin * to[axis]);
    begin += shape[static_cast<int>(axis)];
  }
}

void MakeSlice(KernelBuilder& builder) {
  const Shape::Strides from = builder.input().shape.RowMajorStrides();
  const Shape& shape = builder.output().shape;
  AddBox(builder, 0, shape, from, shape.RowMajorStrides(),
         OffsetOf(builder.attributes().Ints("begin"), from), 0);
}

void MakePad(KernelBuilder& builder) {
  const graph::TensorType& output = builder.output();
  DispatchWord(output.dtype, [&]<typename Word>() {
    Fill<Word> body{};
    kernels::Store(reinterpret_cast<std::byte*>(&body.value), output.dtype, 0,
                   builder.attributes().Float("value"));
    builder.Launch(body, output.shape.num_elements(),
                   [](Fill<Word>& b, const KernelBindings& bindings) {
                     b.y = Out<Word>(bindings);
                   });
  });
  const Shape::Strides to = output.shape.RowMajorStrides();
  const Shape& shape = builder.input().shape;
  AddBox(builder, 0, shape, shape.RowMajorStrides(), to, 0,
         OffsetOf(builder.attributes().Ints("before"), to));
}

}  // namespace

void AddShapeKernels(CudaKernelTable& table) {
  table["Reshape"] = {&MakeCopy, &TakesAll};
  table["StopGradient"] = {&MakeCopy, &TakesAll};
  table["Identity"] = {&MakeCopy, &TakesAll};
  table["Assign"] = {&MakeAssign, &TakesAll};
  table["Transpose"] = {&MakeTranspose, &TakesAll};
  table["Concat"] = {&MakeConcat, &TakesAll};
  table["Slice"] = {&MakeSlice, &TakesAll};
  table["Pad"] = {&MakePad, &TakesAll};
}

}  // namespace replicant::kernels::cuda
