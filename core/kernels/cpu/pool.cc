#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/parallel.h"

// Pooling in own loops over channels, which lie side by side.
namespace replicant::kernels::cpu {
namespace {

// x [B, H, W, C] -> y [B, YH, YW, C]
struct PoolShape {
  int64_t b, h, w, c, yh, yw, window, stride, padding;
  int num_threads;

  // Calls enter(y offset), see(x offset) for each pixel of the window that lies
  // inside the image, leave(y offset), for each pixel of y of image n. Offsets
  // are those of the first channel.
  template <typename Enter, typename See, typename Leave>
  void ForWindows(int64_t n, const Enter& enter, const See& see,
                  const Leave& leave) const {
    for (int64_t row = 0; row < yh; ++row) {
      for (int64_t column = 0; column < yw; ++column) {
        const int64_t at = ((n * yh + row) * yw + column) * c;
        const int64_t top = row * stride - padding;
        const int64_t left = column * stride - padding;
        enter(at);
        for (int64_t i = std::max<int64_t>(0, top);
             i < std::min(h, top + window); ++i) {
          for (int64_t j = std::max<int64_t>(0, left);
               j < std::min(w, left + window); ++j) {
            see(((n * h + i) * w + j) * c);
          }
        }
        leave(at);
      }
    }
  }
  int64_t image_size() const { return h * w * c; }
};

PoolShape ShapeOf(const CpuRequest& request, const Shape& x, const Shape& y) {
  const graph::Attributes& attributes = request.node.attributes;
  return {.b = x[0],
          .h = x[1],
          .w = x[2],
          .c = x[3],
          .yh = y[1],
          .yw = y[2],
          .window = attributes.Int("window"),
          .stride = attributes.Int("stride"),
          .padding = attributes.Int("padding"),
          .num_threads = ThreadsFor(request.num_threads, x.num_elements())};
}

// Calls run(thread, image) for all images.
template <typename Run>
void ForImages(const PoolShape& s, const Run& run) {
  ParallelFor(s.num_threads, s.b, [&](int thread, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) run(thread, n);
  });
}

std::unique_ptr<Kernel> MakeMaxPool(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.output().shape);
  return MakeHostKernel(request, [s](const Operands& operands) {
    const float* x = operands.input<float>(0);
    float* y = operands.output<float>();
    ForImages(s, [&](int /*thread*/, int64_t n) {
      float* best = y;
      s.ForWindows(
          n,
          [&](int64_t at) {
            best = y + at;
            std::fill_n(best, s.c, -std::numeric_limits<float>::infinity());
          },
          [&](int64_t xi) {
            const float* pixel = x + xi;
        // not a number wins, and stays
#pragma omp simd
            for (int64_t k = 0; k < s.c; ++k) {
              const bool wins = pixel[k] > best[k] || pixel[k] != pixel[k];
              best[k] = wins ? pixel[k] : best[k];
            }
          },
          [](int64_t /*at*/) {});
    });
  });
}

std::unique_ptr<Kernel> MakeAveragePool(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.output().shape);
  return MakeHostKernel(request, [s](const Operands& operands) {
    const float* x = operands.input<float>(0);
    float* y = operands.output<float>();
    ForImages(s, [&](int /*thread*/, int64_t n) {
      float* sum = y;
      int64_t count = 0;
      s.ForWindows(
          n,
          [&](int64_t at) {
            sum = y + at;
            count = 0;
            std::fill_n(sum, s.c, 0.0f);
          },
          [&](int64_t xi) {
            ++count;
#pragma omp simd
            for (int64_t k = 0; k < s.c; ++k) sum[k] += x[xi + k];
          },
          [&](int64_t /*at*/) {
            const auto divisor = static_cast<float>(count);
#pragma omp simd
            for (int64_t k = 0; k < s.c; ++k) sum[k] /= divisor;
          });
    });
  });
}

// inputs: x, dy. Each thread notes for each channel the largest value of the
// window so far and which pixel of it was the first of these.
std::unique_ptr<Kernel> MakeMaxPoolGradient(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.input(1).shape);
  const auto size = static_cast<size_t>(s.c * int64_t{s.num_threads});
  return MakeHostKernel(request, [s, values = std::vector<float>(size),
                                  places = std::vector<int32_t>(size)](
                                     const Operands& operands) mutable {
    const float* x = operands.input<float>(0);
    const float* dy = operands.input<float>(1);
    ForImages(s, [&](int thread, int64_t n) {
      float* best = values.data() + s.c * thread;
      // as offsets within the image
      int32_t* place = places.data() + s.c * thread;
      float* dx = operands.output<float>() + n * s.image_size();
      std::fill_n(dx, s.image_size(), 0.0f);
      s.ForWindows(
          n, [&](int64_t /*at*/) { std::fill_n(place, s.c, -1); },
          [&](int64_t xi) {
            const float* pixel = x + xi;
            const auto offset = static_cast<int32_t>(xi - n * s.image_size());
#pragma omp simd
            for (int64_t k = 0; k < s.c; ++k) {
              const bool wins =
                  place[k] < 0 || pixel[k] > best[k] || pixel[k] != pixel[k];
              best[k] = wins ? pixel[k] : best[k];
              place[k] = wins ? offset : place[k];
            }
          },
          [&](int64_t at) {
            for (int64_t k = 0; k < s.c; ++k) dx[place[k] + k] += dy[at + k];
          });
    });
  });
}

// inputs: x (its shape only), dy
std::unique_ptr<Kernel> MakeAveragePoolGradient(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.input(1).shape);
  return MakeHostKernel(request, [s](const Operands& operands) {
    const float* dy = operands.input<float>(1);
    float* dx = operands.output<float>();
    ForImages(s, [&](int /*thread*/, int64_t n) {
      std::fill_n(dx + n * s.image_size(), s.image_size(), 0.0f);
      const auto inside = [](int64_t first, int64_t window, int64_t size) {
        return std::min(size, first + window) - std::max<int64_t>(0, first);
      };
      const float* gradient = dy;
      float share = 0.0f;
      s.ForWindows(
          n,
          [&](int64_t at) {
            gradient = dy + at;
            const int64_t pixel = at / s.c % (s.yh * s.yw);
            const int64_t rows =
                inside(pixel / s.yw * s.stride - s.padding, s.window, s.h);
            const int64_t columns =
                inside(pixel % s.yw * s.stride - s.padding, s.window, s.w);
            share = 1.0f / static_cast<float>(rows * columns);
          },
          [&](int64_t xi) {
#pragma omp simd
            for (int64_t k = 0; k < s.c; ++k) dx[xi + k] += share * gradient[k];
          },
          [](int64_t /*at*/) {});
    });
  });
}

std::unique_ptr<Kernel> MakeUpsample(const CpuRequest& request) {
  const Shape y = request.output().shape;
  const int64_t scale = request.node.attributes.Int("scale");
  const int64_t w = request.input(0).shape[2];
  const int num_threads = ThreadsFor(request.num_threads, y.num_elements());
  return MakeHostKernel(request, [=](const Operands& operands) {
    const int64_t c = y[3];
    // rows of y and of x over all images
    ParallelFor(num_threads, y[0] * y[1],
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t row = begin; row < end; ++row) {
                    const float* from =
                        operands.input<float>(0) + row / scale * w * c;
                    float* to = operands.output<float>() + row * y[2] * c;
                    for (int64_t j = 0; j < y[2]; ++j) {
                      std::copy_n(from + j / scale * c, c, to + j * c);
                    }
                  }
                });
  });
}

}  // namespace

void AddPoolKernels(CpuKernelTable& table) {
  table["MaxPool2d"] = {.make = &MakeMaxPool, .why_not = &WhyNotF32};
  table["AveragePool2d"] = {.make = &MakeAveragePool, .why_not = &WhyNotF32};
  table["MaxPool2dGradient"] = {.make = &MakeMaxPoolGradient,
                                .why_not = &WhyNotF32};
  table["AveragePool2dGradient"] = {.make = &MakeAveragePoolGradient,
                                    .why_not = &WhyNotF32};
  table["UpsampleNearest2d"] = {.make = &MakeUpsample, .why_not = &WhyNotF32};
}

}  // namespace replicant::kernels::cpu
