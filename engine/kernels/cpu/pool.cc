#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/vector_functions.h"

// Pooling in our own loops over channels, which are adjacent in memory, of f32
// or bf16. Sums and comparisons are in f32.
namespace replicant::kernels::cpu {
namespace {

// x [B, H, W, C] -> y [B, YH, YW, C]
struct PoolShape {
  int64_t b, h, w, c, yh, yw, window, stride, padding;
  int num_threads;

  // Calls enter(y offset), see(x offset) for each pixel of the window inside
  // the image, and leave(y offset), for each pixel of y of image n. Offsets
  // refer to the first channel.
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

// A row of channels as floats for each thread.
class ChannelRows {
 public:
  explicit ChannelRows(const PoolShape& s)
      : channels_(s.c),
        floats_(static_cast<size_t>(s.num_threads * channels_)) {}

  float* of(int thread) { return floats_.data() + thread * channels_; }

 private:
  int64_t channels_;
  std::vector<float> floats_;
};

template <typename T>
std::unique_ptr<Kernel> MakeMaxPool(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.output().shape);
  return MakeHostKernel(
      request, [s, rows = ChannelRows(s)](const Operands& operands) mutable {
        const T* x = operands.input<T>(0);
        T* y = operands.output<T>();
        ForImages(s, [&](int thread, int64_t n) {
          float* best = rows.of(thread);
          s.ForWindows(
              n,
              [&](int64_t /*at*/) {
                std::fill_n(best, s.c, -std::numeric_limits<float>::infinity());
              },
              [&](int64_t xi) {
                const T* pixel = x + xi;
        // NaN wins and is kept
#pragma omp simd
                for (int64_t k = 0; k < s.c; ++k) {
                  const auto value = static_cast<float>(pixel[k]);
                  const bool wins = value > best[k] || value != value;
                  best[k] = wins ? value : best[k];
                }
              },
              [&](int64_t at) {
#pragma omp simd
                for (int64_t k = 0; k < s.c; ++k) y[at + k] = T(best[k]);
              });
        });
      });
}

template <typename T>
std::unique_ptr<Kernel> MakeAveragePool(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.output().shape);
  return MakeHostKernel(
      request, [s, rows = ChannelRows(s)](const Operands& operands) mutable {
        const T* x = operands.input<T>(0);
        T* y = operands.output<T>();
        ForImages(s, [&](int thread, int64_t n) {
          float* sum = rows.of(thread);
          int64_t count = 0;
          s.ForWindows(
              n,
              [&](int64_t /*at*/) {
                count = 0;
                std::fill_n(sum, s.c, 0.0f);
              },
              [&](int64_t xi) {
                ++count;
#pragma omp simd
                for (int64_t k = 0; k < s.c; ++k) {
                  sum[k] += static_cast<float>(x[xi + k]);
                }
              },
              [&](int64_t at) {
                const auto divisor = static_cast<float>(count);
#pragma omp simd
                for (int64_t k = 0; k < s.c; ++k)
                  y[at + k] = T(sum[k] / divisor);
              });
        });
      });
}

// Where the gradients of one image are summed: in place if it is f32.
template <typename T>
class ImageSums {
 public:
  explicit ImageSums(const PoolShape& s)
      : size_(s.image_size()),
        floats_(std::is_same_v<T, float>
                    ? 0
                    : static_cast<size_t>(s.num_threads * size_)) {}

  // All zeros. `place` is the image's.
  float* Begin(int thread, T* place) {
    float* sums = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      sums = place;
    } else {
      sums = floats_.data() + thread * size_;
    }
    std::fill_n(sums, size_, 0.0f);
    return sums;
  }
  void End(const float* sums, T* place) const {
    if constexpr (!std::is_same_v<T, float>) {
      ToBF16(sums, static_cast<size_t>(size_), place);
    }
  }

 private:
  int64_t size_;
  std::vector<float> floats_;
};

// Takes what is larger than the best value so far, and NaN, which is kept, with
// its place. Compilers vectorise only a loop without short circuits.
template <typename T>
void TakeLarger(const T* pixel, int64_t channels, int32_t offset, float* best,
                int32_t* place) {
#pragma omp simd
  for (int64_t k = 0; k < channels; ++k) {
    const auto value = static_cast<float>(pixel[k]);
    const bool wins =
        static_cast<int>(value > best[k]) | static_cast<int>(value != value);
    best[k] = wins ? value : best[k];
    place[k] = wins ? offset : place[k];
  }
}

// inputs: x, dy. For each channel a thread keeps the largest value of the
// window so far and the first pixel that has it.
template <typename T>
std::unique_ptr<Kernel> MakeMaxPoolGradient(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.input(1).shape);
  const auto size = static_cast<size_t>(s.c * int64_t{s.num_threads});
  return MakeHostKernel(
      request, [s, values = ChannelRows(s), places = std::vector<int32_t>(size),
                images = ImageSums<T>(s)](const Operands& operands) mutable {
        const T* x = operands.input<T>(0);
        const T* dy = operands.input<T>(1);
        ForImages(s, [&](int thread, int64_t n) {
          float* best = values.of(thread);
          // as offsets within the image
          int32_t* place = places.data() + s.c * thread;
          T* image = operands.output<T>() + n * s.image_size();
          float* dx = images.Begin(thread, image);
          bool is_first = true;
          s.ForWindows(
              n,
              [&](int64_t /*at*/) {
                is_first = true;
                std::fill_n(best, s.c, -std::numeric_limits<float>::infinity());
              },
              [&](int64_t xi) {
                const T* pixel = x + xi;
                const auto offset =
                    static_cast<int32_t>(xi - n * s.image_size());
                if (is_first) std::fill_n(place, s.c, offset);
                is_first = false;
                TakeLarger(pixel, s.c, offset, best, place);
              },
              [&](int64_t at) {
                for (int64_t k = 0; k < s.c; ++k) {
                  dx[place[k] + k] += static_cast<float>(dy[at + k]);
                }
              });
          images.End(dx, image);
        });
      });
}

// inputs: x (its shape only), dy
template <typename T>
std::unique_ptr<Kernel> MakeAveragePoolGradient(const CpuRequest& request) {
  const PoolShape s =
      ShapeOf(request, request.input(0).shape, request.input(1).shape);
  return MakeHostKernel(
      request, [s, images = ImageSums<T>(s)](const Operands& operands) mutable {
        const T* dy = operands.input<T>(1);
        ForImages(s, [&](int thread, int64_t n) {
          const int64_t first = n * s.image_size();
          T* image = operands.output<T>() + first;
          float* dx = images.Begin(thread, image);
          const auto inside = [](int64_t begin, int64_t window, int64_t size) {
            return std::min(size, begin + window) - std::max<int64_t>(0, begin);
          };
          const T* gradient = dy;
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
                for (int64_t k = 0; k < s.c; ++k) {
                  dx[xi - first + k] += share * static_cast<float>(gradient[k]);
                }
              },
              [](int64_t /*at*/) {});
          images.End(dx, image);
        });
      });
}

std::unique_ptr<Kernel> MakeUpsample(const CpuRequest& request) {
  const Shape y = request.output().shape;
  const int64_t scale = request.node.attributes.Int("scale");
  const int64_t w = request.input(0).shape[2];
  // bytes of a pixel
  const auto c = y[3] * static_cast<int64_t>(DTypeSize(request.output().dtype));
  const int num_threads = ThreadsFor(request.num_threads, y.num_elements());
  return MakeHostKernel(request, [=](const Operands& operands) {
    // rows of y and of x over all images
    ParallelFor(num_threads, y[0] * y[1],
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t row = begin; row < end; ++row) {
                    const std::byte* from =
                        operands.inputs[0] + row / scale * w * c;
                    std::byte* to = operands.outputs[0] + row * y[2] * c;
                    for (int64_t j = 0; j < y[2]; ++j) {
                      std::copy_n(from + j / scale * c, c, to + j * c);
                    }
                  }
                });
  });
}

// One of two functions, by the dtype of the images.
template <std::unique_ptr<Kernel> (*make_f32)(const CpuRequest&),
          std::unique_ptr<Kernel> (*make_bf16)(const CpuRequest&)>
std::unique_ptr<Kernel> MakeByDType(const CpuRequest& request) {
  return request.output().dtype == DType::kF32 ? make_f32(request)
                                               : make_bf16(request);
}

}  // namespace

void AddPoolKernels(CpuKernelTable& table) {
  const auto add = [&](std::string_view op, MakeKernel make) {
    table[op] = {.make = make, .why_not = &WhyNotF32OrBF16};
  };
  add("MaxPool2d", &MakeByDType<MakeMaxPool<float>, MakeMaxPool<BFloat16>>);
  add("AveragePool2d",
      &MakeByDType<MakeAveragePool<float>, MakeAveragePool<BFloat16>>);
  add("MaxPool2dGradient",
      &MakeByDType<MakeMaxPoolGradient<float>, MakeMaxPoolGradient<BFloat16>>);
  add("AveragePool2dGradient", &MakeByDType<MakeAveragePoolGradient<float>,
                                            MakeAveragePoolGradient<BFloat16>>);
  add("UpsampleNearest2d", &MakeUpsample);
}

}  // namespace replicant::kernels::cpu
