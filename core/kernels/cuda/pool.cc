#include "core/kernels/cuda/cuda_kernels.h"

// Pooling and upsampling of images.
namespace replicant::kernels::cuda {
namespace {

PoolShape ShapeOf(const KernelBuilder& builder, const Shape& x,
                  const Shape& y) {
  const graph::Attributes& attributes = builder.attributes();
  return {.h = x[1],
          .w = x[2],
          .c = x[3],
          .yh = y[1],
          .yw = y[2],
          .window = attributes.Int("window"),
          .stride = attributes.Int("stride"),
          .padding = attributes.Int("padding")};
}

void MakeMaxPool(KernelBuilder& builder) {
  const PoolShape shape =
      ShapeOf(builder, builder.input().shape, builder.output().shape);
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    DispatchLanes<T>(shape.c, [&]<int kLanes>() {
      using Body = MaxPool<T, kLanes>;
      builder.Launch(Body{.s = shape},
                     builder.output().shape.num_elements() / kLanes,
                     [](Body& b, const KernelBindings& bindings) {
                       b.x = In<T>(bindings, 0);
                       b.y = Out<T>(bindings);
                     });
    });
  });
}

// inputs: x, dy
void MakeMaxPoolGradient(KernelBuilder& builder) {
  const PoolShape shape =
      ShapeOf(builder, builder.output().shape, builder.input(1).shape);
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    DispatchLanes<T>(shape.c, [&]<int kLanes>() {
      using Body = MaxPoolGradient<T, kLanes>;
      builder.Launch(Body{.s = shape},
                     builder.output().shape.num_elements() / kLanes,
                     [](Body& b, const KernelBindings& bindings) {
                       b.x = In<T>(bindings, 0);
                       b.dy = In<T>(bindings, 1);
                       b.dx = Out<T>(bindings);
                     });
    });
  });
}

void MakeAveragePool(KernelBuilder& builder) {
  const PoolShape shape =
      ShapeOf(builder, builder.input().shape, builder.output().shape);
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    using Body = AveragePool<T>;
    builder.Launch(Body{.s = shape}, builder.output().shape.num_elements(),
                   [](Body& b, const KernelBindings& bindings) {
                     b.x = In<T>(bindings, 0);
                     b.y = Out<T>(bindings);
                   });
  });
}

// inputs: x (its shape only), dy
void MakeAveragePoolGradient(KernelBuilder& builder) {
  const PoolShape shape =
      ShapeOf(builder, builder.output().shape, builder.input(1).shape);
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    using Body = AveragePoolGradient<T>;
    builder.Launch(Body{.s = shape}, builder.output().shape.num_elements(),
                   [](Body& b, const KernelBindings& bindings) {
                     b.dy = In<T>(bindings, 1);
                     b.dx = Out<T>(bindings);
                   });
  });
}

template <typename Word>
void AddUpsample(KernelBuilder& builder) {
  const Shape& x = builder.input().shape;
  const Upsample<Word> body{.width = x[2],
                            .channels = x[3],
                            .scale = builder.attributes().Int("scale")};
  builder.Launch(body, builder.output().shape.num_elements(),
                 [](Upsample<Word>& b, const KernelBindings& bindings) {
                   b.x = In<Word>(bindings, 0);
                   b.y = Out<Word>(bindings);
                 });
}

void MakeUpsample(KernelBuilder& builder) {
  if (builder.input().dtype == DType::kBF16) {
    AddUpsample<uint16_t>(builder);
  } else {
    AddUpsample<uint32_t>(builder);
  }
}

}  // namespace

void AddPoolKernels(CudaKernelTable& table) {
  table["MaxPool2d"] = {&MakeMaxPool, &WhyNotF32OrBF16};
  table["AveragePool2d"] = {&MakeAveragePool, &WhyNotF32OrBF16};
  table["MaxPool2dGradient"] = {&MakeMaxPoolGradient, &WhyNotF32OrBF16};
  table["AveragePool2dGradient"] = {&MakeAveragePoolGradient, &WhyNotF32OrBF16};
  table["UpsampleNearest2d"] = {&MakeUpsample, &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cuda
