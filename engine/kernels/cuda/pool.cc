#include <fmt/format.h>

#include <optional>

#include "engine/kernels/cuda/cuda_kernels.h"

// Pooling and upsampling of images.
namespace replicant::kernels::cuda {
namespace {

// Limit that lets a place in a window fit in 16 bits.
constexpr int64_t kMaxWindow = 255;

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

// Adds the largest elements of x's windows or, with an offset in scratch, their
// places.
template <typename T, int kLanes>
void AddMaxPool(KernelBuilder& builder, const PoolShape& shape,
                int64_t num_windows, std::optional<size_t> places) {
  using Body = MaxPool<T, kLanes>;
  builder.Launch(Body{.s = shape}, num_windows / kLanes,
                 [places](Body& b, const KernelBindings& bindings) {
                   b.x = In<T>(bindings, 0);
                   b.y = places ? nullptr : Out<T>(bindings);
                   b.places =
                       places ? Scratch<uint16_t>(bindings, *places) : nullptr;
                 });
}

void MakeMaxPool(KernelBuilder& builder) {
  const graph::TensorType& y = builder.output();
  const PoolShape shape = ShapeOf(builder, builder.input().shape, y.shape);
  DispatchFloat(y.dtype, [&]<typename T>() {
    DispatchLanes<T>(shape.c, [&]<int kLanes>() {
      AddMaxPool<T, kLanes>(builder, shape, y.shape.num_elements(),
                            /*places=*/std::nullopt);
    });
  });
}

// Adds dx from places that `places` finds.
template <typename T, typename Place, typename FindPlaces>
void AddMaxPoolGradient(KernelBuilder& builder, const PoolShape& shape,
                        const FindPlaces& places) {
  DispatchLanes<T>(shape.c, [&]<int kLanes>() {
    using Body = MaxPoolGradient<T, Place, kLanes>;
    builder.Launch(Body{.s = shape},
                   builder.output().shape.num_elements() / kLanes,
                   [places](Body& b, const KernelBindings& bindings) {
                     b.places = places(bindings);
                     b.dy = In<T>(bindings, 1);
                     b.dx = Out<T>(bindings);
                   });
  });
}

// inputs: x or, with the attribute "image", places; dy
void MakeMaxPoolGradient(KernelBuilder& builder) {
  const graph::TensorType& dy = builder.input(1);
  const PoolShape shape = ShapeOf(builder, builder.output().shape, dy.shape);
  const int64_t num_windows = dy.shape.num_elements();
  DispatchFloat(dy.dtype, [&]<typename T>() {
    if (builder.attributes().Has("image")) {
      AddMaxPoolGradient<T, uint8_t>(builder, shape,
                                     [](const KernelBindings& bindings) {
                                       return In<uint8_t>(bindings, 0);
                                     });
      return;
    }
    const size_t places =
        builder.AddScratch(static_cast<size_t>(num_windows) * sizeof(uint16_t));
    DispatchLanes<T>(shape.c, [&]<int kLanes>() {
      AddMaxPool<T, kLanes>(builder, shape, num_windows, places);
    });
    AddMaxPoolGradient<T, uint16_t>(
        builder, shape, [places](const KernelBindings& bindings) {
          return Scratch<uint16_t>(bindings, places);
        });
  });
}

std::string WhyNotMaxPoolGradient(const KernelRequest& request) {
  if (std::string why = WhyNotF32OrBF16(request); !why.empty()) return why;
  const int64_t window = request.node.attributes.Int("window");
  if (window <= kMaxWindow) return {};
  return fmt::format("it takes windows of at most {0} x {0} pixels, got {1}",
                     kMaxWindow, window);
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
  table["MaxPool2dGradient"] = {&MakeMaxPoolGradient, &WhyNotMaxPoolGradient};
  table["AveragePool2dGradient"] = {&MakeAveragePoolGradient, &WhyNotF32OrBF16};
  table["UpsampleNearest2d"] = {&MakeUpsample, &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cuda
