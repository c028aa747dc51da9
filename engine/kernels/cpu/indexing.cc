#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"

namespace replicant::kernels::cpu {
namespace {

// inputs: dy [indices..., row], indices; output: the table's gradient. Each
// thread owns rows of the table, and adds the rows of dy to them in order.
template <typename Index>
std::unique_ptr<Kernel> MakeScatterAddBy(const CpuRequest& request) {
  const Shape& table = request.output().shape;
  const int64_t table_rows = table[0];
  const int64_t row_size = table.WithoutLeading().num_elements();
  const int64_t count = request.input(1).shape.num_elements();
  const int num_threads =
      ThreadsFor(request.num_threads,
                 table.num_elements() + request.input(0).shape.num_elements());
  return MakeHostKernel(request, [=](const Operands& operands) {
    const auto* dy = operands.input<float>(0);
    const auto* indices = operands.input<Index>(1);
    auto* sums = operands.output<float>();
    ParallelFor(num_threads, table_rows,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  std::fill(sums + begin * row_size, sums + end * row_size,
                            0.0f);
                  for (int64_t i = 0; i < count; ++i) {
                    const auto row = static_cast<int64_t>(indices[i]);
                    if (row < begin || row >= end) continue;
                    float* to = sums + row * row_size;
                    const float* from = dy + i * row_size;
#pragma omp simd
                    for (int64_t k = 0; k < row_size; ++k) to[k] += from[k];
                  }
                });
  });
}

std::unique_ptr<Kernel> MakeScatterAdd(const CpuRequest& request) {
  if (request.output().dtype != DType::kF32) return MakeCommonKernel(request);
  return request.input(1).dtype == DType::kI32
             ? MakeScatterAddBy<int32_t>(request)
             : MakeScatterAddBy<int64_t>(request);
}

// Writes frame k of one stack, `pixels` of kChannels bytes, between the other
// frames' channels. Null `frame`: zeros.
template <int kChannels>
void WriteFrame(const uint8_t* frame, int64_t pixels, int64_t out_stride,
                uint8_t* out) {
  constexpr uint8_t kZeros[kChannels] = {};
  for (int64_t p = 0; p < pixels; ++p) {
    std::memcpy(out + p * out_stride,
                frame != nullptr ? frame + p * kChannels : kZeros, kChannels);
  }
}

// inputs: frames [N, F], slots [..., K]. Each thread writes whole stacks.
std::unique_ptr<Kernel> MakeGatherStacks(const CpuRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const int64_t channels = attributes.Int("channels");
  // gray or colour
  if (channels != 1 && channels != 3) return MakeCommonKernel(request);
  const Shape& frames = request.input(0).shape;
  const int64_t num_frames = frames[0];
  const int64_t frame_bytes = frames[1];
  const Shape& slots = request.input(1).shape;
  const int64_t depth = slots[slots.rank() - 1];
  const int64_t begin = attributes.Int("begin");
  const int64_t pixels = attributes.Int("pixels");
  const int64_t out_bytes = request.output().shape.num_elements();
  const int64_t stride = channels * depth;
  const int num_threads = ThreadsFor(request.num_threads, out_bytes);
  const auto write = channels == 1 ? &WriteFrame<1> : &WriteFrame<3>;
  return MakeHostKernel(request, [=](const Operands& operands) {
    const auto* table = operands.input<uint8_t>(0);
    const auto* slot = operands.input<int32_t>(1);
    auto* y = operands.output<uint8_t>();
    ParallelFor(
        num_threads, out_bytes / (pixels * stride),
        [&](int /*thread*/, int64_t first, int64_t end) {
          for (int64_t i = first * depth; i < end * depth; ++i) {
            const bool is_inside = slot[i] >= 0 && slot[i] < num_frames;
            write(is_inside ? table + slot[i] * frame_bytes + begin : nullptr,
                  pixels, stride,
                  y + i / depth * pixels * stride + i % depth * channels);
          }
        });
  });
}

}  // namespace

void AddIndexingKernels(CpuKernelTable& table) {
  table["GatherStacks"] = {.make = &MakeGatherStacks};
  table["ScatterAdd"] = {.make = &MakeScatterAdd};
}

}  // namespace replicant::kernels::cpu
