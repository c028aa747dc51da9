#include <algorithm>

#include "engine/kernels/common/element.h"
#include "engine/kernels/common/program.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

// x [B, H, W, C], w [O, C, KH, KW], y [B, YH, YW, O]
struct ConvPlan {
  int64_t b, h, w, c;
  int64_t o, kh, kw;
  int64_t yh, yw;
  int64_t stride, padding;

  // Calls visit(x offset, w offset) for every pixel and channel in the window
  // of y's pixel (row, column) of image n and channel `out`.
  template <typename Visit>
  void ForWindow(int64_t n, int64_t row, int64_t column, int64_t out,
                 const Visit& visit) const {
    for (int64_t u = 0; u < kh; ++u) {
      const int64_t i = row * stride + u - padding;
      if (i < 0 || i >= h) continue;
      for (int64_t v = 0; v < kw; ++v) {
        const int64_t j = column * stride + v - padding;
        if (j < 0 || j >= w) continue;
        for (int64_t k = 0; k < c; ++k) {
          visit(((n * h + i) * w + j) * c + k,
                ((out * c + k) * kh + u) * kw + v);
        }
      }
    }
  }

  // Calls visit(y offset, image, row, column, channel) for all of y.
  template <typename Visit>
  void ForOutputs(const Visit& visit) const {
    int64_t offset = 0;
    for (int64_t n = 0; n < b; ++n) {
      for (int64_t row = 0; row < yh; ++row) {
        for (int64_t column = 0; column < yw; ++column) {
          for (int64_t out = 0; out < o; ++out) {
            visit(offset++, n, row, column, out);
          }
        }
      }
    }
  }
};

ConvPlan PlanOf(const Shape& x, const Shape& w, const Shape& y,
                const graph::Attributes& attributes) {
  return {.b = x[0],
          .h = x[1],
          .w = x[2],
          .c = x[3],
          .o = w[0],
          .kh = w[2],
          .kw = w[3],
          .yh = y[1],
          .yw = y[2],
          .stride = attributes.Int("stride"),
          .padding = attributes.Int("padding")};
}

// The inputs without offsets, which come last.
size_t NumConvInputs(const KernelRequest& request) {
  return request.node.inputs.size() -
         (request.node.attributes.Has("is_shifted") ? 1 : 0);
}

RunFunction MakeConv(const KernelRequest& request) {
  const ConvPlan plan = PlanOf(request.input(0).shape, request.input(1).shape,
                               request.output().shape, request.node.attributes);
  const size_t num_inputs = NumConvInputs(request);
  const bool has_bias = num_inputs > 2;
  const DType bias_dtype = request.input(num_inputs - 1).dtype;
  const Activation activation(request.node.attributes);
  return DispatchFloating(
      request.output().dtype, [&]<typename T>() -> RunFunction {
        return [plan, has_bias, bias_dtype,
                activation](const Operands& operands) {
          const T* x = operands.input<T>(0);
          const T* w = operands.input<T>(1);
          T* y = operands.output<T>();
          plan.ForOutputs([&](int64_t at, int64_t n, int64_t row,
                              int64_t column, int64_t out) {
            double sum = 0.0;
            plan.ForWindow(n, row, column, out, [&](int64_t xi, int64_t wi) {
              sum += ToDouble(x[xi]) * ToDouble(w[wi]);
            });
            if (has_bias) {
              sum = BeforeBias<T>(sum) +
                    Load(operands.inputs[2], bias_dtype, out);
            }
            // rounded like the result of a node without an activation
            y[at] = FromDouble<T>(activation(ToDouble(FromDouble<T>(sum))));
          });
        };
      });
}

// Adjoints sum in double, in memory allocated while compiling.
std::vector<double>& Cleared(std::vector<double>& sums) {
  std::fill(sums.begin(), sums.end(), 0.0);
  return sums;
}

template <typename T>
void Round(const std::vector<double>& sums, T* output) {
  for (size_t i = 0; i < sums.size(); ++i) output[i] = FromDouble<T>(sums[i]);
}

std::vector<double> SumsFor(const KernelRequest& request) {
  return std::vector<double>(
      static_cast<size_t>(request.output().shape.num_elements()));
}

// inputs: dy, w
RunFunction MakeInputGradient(const KernelRequest& request) {
  const ConvPlan plan = PlanOf(request.output().shape, request.input(1).shape,
                               request.input(0).shape, request.node.attributes);
  return DispatchFloating(
      request.output().dtype, [&]<typename T>() -> RunFunction {
        return [plan,
                sums = SumsFor(request)](const Operands& operands) mutable {
          const T* dy = operands.input<T>(0);
          const T* w = operands.input<T>(1);
          std::vector<double>& dx = Cleared(sums);
          plan.ForOutputs([&](int64_t at, int64_t n, int64_t row,
                              int64_t column, int64_t out) {
            plan.ForWindow(n, row, column, out, [&](int64_t xi, int64_t wi) {
              dx[static_cast<size_t>(xi)] += ToDouble(dy[at]) * ToDouble(w[wi]);
            });
          });
          Round(dx, operands.output<T>());
        };
      });
}

// inputs: x, dy
RunFunction MakeWeightGradient(const KernelRequest& request) {
  const ConvPlan plan = PlanOf(request.input(0).shape, request.output().shape,
                               request.input(1).shape, request.node.attributes);
  return DispatchFloating(
      request.input(1).dtype, request.output().dtype,
      [&]<typename In, typename Out>() -> RunFunction {
        return [plan,
                sums = SumsFor(request)](const Operands& operands) mutable {
          const In* x = operands.input<In>(0);
          const In* dy = operands.input<In>(1);
          std::vector<double>& dw = Cleared(sums);
          plan.ForOutputs([&](int64_t at, int64_t n, int64_t row,
                              int64_t column, int64_t out) {
            plan.ForWindow(n, row, column, out, [&](int64_t xi, int64_t wi) {
              dw[static_cast<size_t>(wi)] += ToDouble(dy[at]) * ToDouble(x[xi]);
            });
          });
          Round(dw, operands.output<Out>());
        };
      });
}

// Calls visit(offset of the image's element, offset of its byte) for all
// elements of images [B, H, W, C]. `offsets` may be null.
template <typename Visit>
void ForPixels(const Shape& x, const int32_t* offsets, const Visit& visit) {
  int64_t at = 0;
  for (int64_t n = 0; n < x[0]; ++n) {
    const int64_t down = offsets == nullptr ? 0 : offsets[2 * n];
    const int64_t right = offsets == nullptr ? 0 : offsets[2 * n + 1];
    for (int64_t i = 0; i < x[1]; ++i) {
      for (int64_t j = 0; j < x[2]; ++j) {
        const int64_t row = std::clamp<int64_t>(i + down, 0, x[1] - 1);
        const int64_t column = std::clamp<int64_t>(j + right, 0, x[2] - 1);
        for (int64_t c = 0; c < x[3]; ++c) {
          visit(at++, ((n * x[1] + row) * x[2] + column) * x[3] + c);
        }
      }
    }
  }
}

// Makes images of the pixels, in memory allocated while compiling, and passes
// them to `conv` as its input 0.
RunFunction OnPixels(const KernelRequest& request, RunFunction conv) {
  const Shape shape = request.input(0).shape;
  const DType dtype = request.input(1).dtype;
  const double scale = request.node.attributes.Float("scale");
  const double offset = request.node.attributes.Float("offset");
  const bool is_shifted = request.node.attributes.Has("is_shifted");
  std::vector<std::byte> images(static_cast<size_t>(shape.num_elements()) *
                                DTypeSize(dtype));
  return [=, conv = std::move(conv), images = std::move(images),
          on_images = Operands()](const Operands& operands) mutable {
    const auto* offsets =
        is_shifted ? operands.input<int32_t>(operands.inputs.size() - 1)
                   : nullptr;
    const auto* bytes = operands.input<uint8_t>(0);
    ForPixels(shape, offsets, [&](int64_t at, int64_t from) {
      double pixel = scale * bytes[from] + offset;
      if (dtype == DType::kBF16) pixel = static_cast<float>(pixel);
      Store(images.data(), dtype, at, pixel);
    });
    on_images = operands;
    on_images.inputs[0] = images.data();
    conv(on_images);
  };
}

RunFunction MakePixelConv(const KernelRequest& request) {
  return OnPixels(request, MakeConv(request));
}

RunFunction MakePixelWeightGradient(const KernelRequest& request) {
  return OnPixels(request, MakeWeightGradient(request));
}

}  // namespace

void AddConvKernels(HostKernelTable& table) {
  table.emplace("Conv2d", &MakeConv);
  table.emplace("Conv2dInputGradient", &MakeInputGradient);
  table.emplace("Conv2dWeightGradient", &MakeWeightGradient);
  table.emplace("PixelConv2d", &MakePixelConv);
  table.emplace("PixelConv2dWeightGradient", &MakePixelWeightGradient);
}

}  // namespace replicant::kernels::reference
