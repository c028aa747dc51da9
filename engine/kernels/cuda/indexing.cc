#include "engine/kernels/cuda/cuda_kernels.h"

// Ops that select or make elements by index: gather, one-hot, image shift,
// stacks of frames, random numbers.
namespace replicant::kernels::cuda {
namespace {

Indices IndicesOf(const KernelBindings& bindings, size_t input, bool is_i64) {
  return {.data = bindings.inputs[input], .is_i64 = is_i64};
}

int64_t RowSizeOf(const graph::TensorType& type) {
  return type.shape.WithoutLeading().num_elements();
}

void MakeGather(KernelBuilder& builder) {
  builder.SelectRows();
  const bool is_i64 = builder.input(1).dtype == DType::kI64;
  DispatchWord(builder.output().dtype, [&]<typename Word>() {
    const Gather<Word> body{.num_rows = builder.input().shape[0],
                            .row_size = RowSizeOf(builder.input())};
    builder.Launch(body, builder.output().shape.num_elements(),
                   [is_i64](Gather<Word>& b, const KernelBindings& bindings) {
                     b.table = In<Word>(bindings, 0);
                     b.indices = IndicesOf(bindings, 1, is_i64);
                     b.y = Out<Word>(bindings);
                   });
  });
}

// inputs: dy, indices
void MakeScatterAdd(KernelBuilder& builder) {
  const bool is_i64 = builder.input(1).dtype == DType::kI64;
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    const ScatterAdd<T> body{
        .num_indices = builder.input(1).shape.num_elements(),
        .row_size = RowSizeOf(builder.output())};
    builder.Launch(body, builder.output().shape.num_elements(),
                   [is_i64](ScatterAdd<T>& b, const KernelBindings& bindings) {
                     b.dy = In<T>(bindings, 0);
                     b.indices = IndicesOf(bindings, 1, is_i64);
                     b.y = Out<T>(bindings);
                   });
  });
}

void MakeOneHot(KernelBuilder& builder) {
  const bool is_i64 = builder.input().dtype == DType::kI64;
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    const OneHot<T> body{.depth = builder.attributes().Int("depth")};
    builder.Launch(body, builder.output().shape.num_elements(),
                   [is_i64](OneHot<T>& b, const KernelBindings& bindings) {
                     b.indices = IndicesOf(bindings, 0, is_i64);
                     b.y = Out<T>(bindings);
                   });
  });
}

// inputs: x [B, H, W, C], offsets [B, 2]
void MakeRandomShift(KernelBuilder& builder) {
  const auto add = [&]<typename Word>() {
    const Shape& x = builder.input().shape;
    const RandomShift<Word> body{
        .height = x[1], .width = x[2], .channels = x[3]};
    builder.Launch(body, x.num_elements(),
                   [](RandomShift<Word>& b, const KernelBindings& bindings) {
                     b.x = In<Word>(bindings, 0);
                     b.offsets = In<int32_t>(bindings, 1);
                     b.y = Out<Word>(bindings);
                   });
  };
  switch (DTypeSize(builder.input().dtype)) {
    case 1:
      return add.template operator()<uint8_t>();
    case 2:
      return add.template operator()<uint16_t>();
    default:
      return add.template operator()<uint32_t>();
  }
}

std::string WhyNotShift(const KernelRequest& request) {
  if (DTypeSize(request.input(0).dtype) <= 4) return {};
  return "it takes elements of up to 4 bytes, got " +
         request.input(0).ToString();
}

// inputs: frames [N, F], slots [..., K]
void MakeGatherStacks(KernelBuilder& builder) {
  builder.SelectRows();
  const Shape& frames = builder.input(0).shape;
  const Shape& slots = builder.input(1).shape;
  const GatherStacks body{.num_frames = frames[0],
                          .frame_bytes = frames[1],
                          .depth = slots[slots.rank() - 1],
                          .begin = builder.attributes().Int("begin"),
                          .pixels = builder.attributes().Int("pixels"),
                          .channels = builder.attributes().Int("channels")};
  builder.Launch(body, builder.output().shape.num_elements() / body.channels,
                 [](GatherStacks& b, const KernelBindings& bindings) {
                   b.frames = In<uint8_t>(bindings, 0);
                   b.slots = In<int32_t>(bindings, 1);
                   b.y = Out<uint8_t>(bindings);
                 });
}

void MakeArgMax(KernelBuilder& builder) {
  const Shape& x = builder.input().shape;
  DispatchFloat(builder.input().dtype, [&]<typename T>() {
    const ArgMax<T> body{.columns = x[x.rank() - 1]};
    builder.Launch(body, builder.output().shape.num_elements(),
                   [](ArgMax<T>& b, const KernelBindings& bindings) {
                     b.x = In<T>(bindings, 0);
                     b.y = Out<int64_t>(bindings);
                   });
  });
}

RandomElements ElementsOf(const KernelBuilder& builder) {
  return {.key = static_cast<uint64_t>(builder.attributes().Int("key")),
          .first_row = builder.attributes().Int("first_row"),
          .row_size = RowSizeOf(builder.output())};
}

// Launches a body with the fields `elements` and `y`.
template <typename Body>
void AddRandom(KernelBuilder& builder, const Body& body) {
  builder.Launch(body, builder.output().shape.num_elements(),
                 [](Body& b, const KernelBindings& bindings) {
                   b.elements.step = In<int64_t>(bindings, 0);
                   b.elements.row_offset = bindings.inputs.size() > 1
                                               ? In<int64_t>(bindings, 1)
                                               : nullptr;
                   b.y = Out<std::remove_pointer_t<decltype(b.y)>>(bindings);
                 });
}

void MakeRandomUniform(KernelBuilder& builder) {
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    AddRandom(builder, RandomUniform<T>{.elements = ElementsOf(builder)});
  });
}

void MakeRandomNormal(KernelBuilder& builder) {
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    AddRandom(builder, RandomNormal<T>{.elements = ElementsOf(builder)});
  });
}

void MakeRandomInt(KernelBuilder& builder) {
  AddRandom(
      builder,
      RandomInt{.elements = ElementsOf(builder),
                .low = static_cast<double>(builder.attributes().Int("low")),
                .high = static_cast<double>(builder.attributes().Int("high"))});
}

}  // namespace

void AddIndexingKernels(CudaKernelTable& table) {
  table["Gather"] = {&MakeGather, &TakesAll};
  table["ScatterAdd"] = {&MakeScatterAdd, &WhyNotF32OrBF16};
  table["OneHot"] = {&MakeOneHot, &WhyNotF32OrBF16};
  table["RandomShift"] = {&MakeRandomShift, &WhyNotShift};
  table["GatherStacks"] = {&MakeGatherStacks, &TakesAll};
  table["ArgMax"] = {&MakeArgMax, &WhyNotF32OrBF16};
  table["RandomUniform"] = {&MakeRandomUniform, &WhyNotF32OrBF16};
  table["RandomNormal"] = {&MakeRandomNormal, &WhyNotF32OrBF16};
  table["RandomInt"] = {&MakeRandomInt, &TakesAll};
}

}  // namespace replicant::kernels::cuda
