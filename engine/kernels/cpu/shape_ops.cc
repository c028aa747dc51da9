#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"

// Kernels that move runs of bytes on all threads. Transposes, gathers and
// random numbers stay in common/.
namespace replicant::kernels::cpu {
namespace {

// Output 0 becomes a copy of one of the inputs.
std::unique_ptr<Kernel> MakeCopyOf(const CpuRequest& request, size_t input) {
  const auto size_bytes = static_cast<int64_t>(request.output().SizeBytes());
  // memory bandwidth limits a copy, and few threads saturate it
  const int num_threads = ThreadsFor(request.num_threads, size_bytes / 16);
  return MakeHostKernel(request, [=](const Operands& operands) {
    const std::byte* from = operands.inputs[input];
    std::byte* to = operands.outputs[0];
    // a shared tensor needs no copy
    if (from == to) return;
    ParallelFor(num_threads, size_bytes,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  if (end > begin) {
                    std::memcpy(to + begin, from + begin,
                                static_cast<size_t>(end - begin));
                  }
                });
  });
}

std::unique_ptr<Kernel> MakeCopy(const CpuRequest& request) {
  return MakeCopyOf(request, 0);
}

// inputs: the version to replace, the new value
std::unique_ptr<Kernel> MakeAssign(const CpuRequest& request) {
  return MakeCopyOf(request, 1);
}

// Bytes of the elements of `shape` from `axis` on.
int64_t BytesFrom(const graph::TensorType& type, int axis) {
  auto size = static_cast<int64_t>(DTypeSize(type.dtype));
  for (int i = axis; i < type.shape.rank(); ++i) size *= type.shape[i];
  return size;
}

// All inputs and the output have the same axes before this one. Each row of the
// output is one run of each input.
std::unique_ptr<Kernel> MakeConcat(const CpuRequest& request) {
  const auto axis = static_cast<int>(request.node.attributes.Int("axis"));
  const int64_t row_bytes = BytesFrom(request.output(), axis);
  const int64_t rows =
      row_bytes == 0
          ? 0
          : static_cast<int64_t>(request.output().SizeBytes()) / row_bytes;
  std::vector<int64_t> runs;
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    runs.push_back(BytesFrom(request.input(i), axis));
  }
  const int num_threads =
      ThreadsFor(request.num_threads, rows * row_bytes / 16);
  return MakeHostKernel(request, [=](const Operands& operands) {
    ParallelFor(num_threads, rows,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t row = begin; row < end; ++row) {
                    std::byte* to = operands.outputs[0] + row * row_bytes;
                    for (size_t i = 0; i < runs.size(); ++i) {
                      std::memcpy(to, operands.inputs[i] + row * runs[i],
                                  static_cast<size_t>(runs[i]));
                      to += runs[i];
                    }
                  }
                });
  });
}

// inputs: x [B, H, W, C], offsets [B, 2]. A row of the result is a run of a row
// of x, with its first or last pixel repeated.
std::unique_ptr<Kernel> MakeRandomShift(const CpuRequest& request) {
  const Shape x = request.input(0).shape;
  const int64_t pixel =
      x[3] * static_cast<int64_t>(DTypeSize(request.input(0).dtype));
  const int num_threads =
      ThreadsFor(request.num_threads, x[0] * x[1] * x[2] * pixel / 16);
  return MakeHostKernel(request, [=](const Operands& operands) {
    const int32_t* offsets = operands.input<int32_t>(1);
    const int64_t width = x[2];
    const auto run = [&](int /*thread*/, int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t n = line / x[1];
        const int64_t row =
            std::clamp<int64_t>(line % x[1] + offsets[2 * n], 0, x[1] - 1);
        const std::byte* from =
            operands.inputs[0] + (n * x[1] + row) * width * pixel;
        std::byte* to = operands.outputs[0] + line * width * pixel;
        const int64_t shift = offsets[2 * n + 1];
        // columns of the result that have a source pixel
        const int64_t first = std::clamp<int64_t>(-shift, 0, width);
        const int64_t last = std::clamp<int64_t>(width - shift, first, width);
        const auto repeat = [&](int64_t source, int64_t b, int64_t e) {
          for (int64_t j = b; j < e; ++j) {
            std::memcpy(to + j * pixel, from + source * pixel,
                        static_cast<size_t>(pixel));
          }
        };
        repeat(0, 0, first);
        if (last > first) {
          std::memcpy(to + first * pixel, from + (first + shift) * pixel,
                      static_cast<size_t>((last - first) * pixel));
        }
        repeat(shift > 0 ? width - 1 : 0, last, width);
      }
    };
    ParallelFor(num_threads, x[0] * x[1], run);
  });
}

}  // namespace

void AddShapeKernels(CpuKernelTable& table) {
  table["Reshape"] = {.make = &MakeCopy};
  table["StopGradient"] = {.make = &MakeCopy};
  table["Identity"] = {.make = &MakeCopy};
  table["Assign"] = {.make = &MakeAssign};
  table["Concat"] = {.make = &MakeConcat};
  table["RandomShift"] = {.make = &MakeRandomShift};
}

}  // namespace replicant::kernels::cpu
