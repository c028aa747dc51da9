#include "engine/kernels/cuda/cudnn_graph.h"

#include <array>

namespace replicant::kernels::cuda::cudnn {
namespace {

cudnnDataType_t DataTypeOf(DType dtype) {
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// A tensor [n, h, w, c] with channels last, in cuDNN's order of dimensions.
// A virtual one has no memory: it lies between two operations.
Descriptor MakeTensor(const Functions& f, int64_t id, DType dtype,
                      const std::array<int64_t, 4>& nhwc,
                      bool is_virtual = false) {
  const auto [n, h, w, c] = nhwc;
  Descriptor tensor(f, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{id});
  tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
             std::vector{DataTypeOf(dtype)});
  tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
             std::vector{int64_t{16}});
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
             std::vector{n, c, h, w});
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
             std::vector{h * w * c, int64_t{1}, w * c, c});
  tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
             std::vector<char>{is_virtual});
  tensor.Finalize("tensor");
  return tensor;
}

// The names of one operation's attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
};

OperationNames NamesOf(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case ConvolutionKind::kInputGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionKind::kWeightGradient:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
}

Descriptor MakeConvolution(const Functions& f, const ConvolutionProblem& p) {
  Descriptor conv(f, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::vector<int64_t> paddings = {p.padding, p.padding};
  conv.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
           std::vector{int64_t{2}});
  conv.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
           std::vector{CUDNN_DATA_FLOAT});
  conv.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
           std::vector{CUDNN_CROSS_CORRELATION});
  conv.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, paddings);
  conv.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, paddings);
  conv.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64,
           std::vector{int64_t{1}, int64_t{1}});
  conv.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
           std::vector{p.stride, p.stride});
  conv.Finalize("convolution");
  return conv;
}

// y = mode(x) or mode(x, b), computed in f32.
Descriptor MakePointwise(const Functions& f, cudnnPointwiseMode_t mode,
                         const Descriptor& x, const Descriptor* b,
                         const Descriptor& y) {
  Descriptor pointwise(f, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                std::vector{mode});
  pointwise.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                std::vector{CUDNN_DATA_FLOAT});
  pointwise.Finalize("pointwise");
  Descriptor operation(f, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operation.Finalize("pointwise operation");
  return operation;
}

}  // namespace

Descriptor MakeConvolutionGraph(const Functions& f, const Target& target,
                                const ConvolutionProblem& p) {
  const std::array<int64_t, 4> y_shape = {p.b, p.yh, p.yw, p.o};
  const Descriptor x = MakeTensor(f, kX, p.dtype, {p.b, p.h, p.w, p.c});
  const Descriptor w = MakeTensor(f, kW, p.dtype, {p.o, p.kh, p.kw, p.c});
  const Descriptor y = MakeTensor(f, kY, p.dtype, y_shape);
  const Descriptor bias = MakeTensor(f, kBias, p.dtype, {1, 1, 1, p.o});
  const Descriptor products =
      MakeTensor(f, kProducts, DType::kF32, y_shape, /*is_virtual=*/true);
  const Descriptor sums =
      MakeTensor(f, kSums, DType::kF32, y_shape, /*is_virtual=*/true);
  const Descriptor conv = MakeConvolution(f, p);
  const OperationNames names = NamesOf(p.kind);
  std::vector<Descriptor> operations;
  Descriptor& product = operations.emplace_back(f, names.type);
  product.Set(names.conv, conv);
  product.Set(names.x, x);
  product.Set(names.w, w);
  product.Set(names.y, p.has_bias ? products : y);
  product.Set(names.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0F});
  product.Set(names.beta, CUDNN_TYPE_FLOAT, std::vector{0.0F});
  product.Finalize("operation");
  if (p.has_bias) {
    operations.push_back(MakePointwise(f, CUDNN_POINTWISE_ADD, products, &bias,
                                       p.has_relu ? sums : y));
  }
  if (p.has_relu) {
    operations.push_back(
        MakePointwise(f, CUDNN_POINTWISE_RELU_FWD, sums, nullptr, y));
  }
  Descriptor graph(f, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr) {
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
              std::vector{target.handle});
  }
  std::vector<cudnnBackendDescriptor_t> handles;
  handles.reserve(operations.size());
  for (const Descriptor& operation : operations) {
    handles.push_back(operation.get());
  }
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            handles);
  graph.Finalize("operation graph");
  return graph;
}

}  // namespace replicant::kernels::cuda::cudnn
