#include <algorithm>

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

}  // namespace

void AddIndexingKernels(CpuKernelTable& table) {
  table["ScatterAdd"] = {.make = &MakeScatterAdd};
}

}  // namespace replicant::kernels::cpu
