// Convolutions, pools and upsampling of images [B, H, W, C].
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/tensor/host_tensor.h"
#include "engine/export/stablehlo_forms.h"

namespace replicant::exporting {
namespace {

// --- convolutions ---

// A convolution of StableHLO over two axes.
struct Convolution {
  // "[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]"
  std::string_view dimensions;
  int64_t stride = 1;
  // Widths of the zeros around the image: before and behind, by axis.
  Dims padding_h, padding_w;
  // Distance of neighbours.
  int64_t image_step = 1;
  int64_t kernel_step = 1;
};

HloValue Convolve(HloBuilder& b, const HloValue& image, const HloValue& kernel,
                  const graph::TensorType& result, const Convolution& c) {
  return b.Op(
      {.op = "convolution",
       .operands = {image, kernel},
       .dtype = result.dtype,
       .shape = result.shape,
       .attributes = fmt::format(
           "dimension_numbers = #stablehlo.conv<{}>, window_strides = "
           "array<i64: {}, {}>, padding = dense<[[{}, {}], [{}, {}]]> "
           ": tensor<2x2xi64>, lhs_dilation = array<i64: {}, {}>, "
           "rhs_dilation = array<i64: {}, {}>, feature_group_count = 1 "
           ": i64, batch_group_count = 1 : i64, {}",
           c.dimensions, c.stride, c.stride, c.padding_h[0], c.padding_h[1],
           c.padding_w[0], c.padding_w[1], c.image_step, c.image_step,
           c.kernel_step, c.kernel_step, ProductPrecision(image.dtype))});
}

HloValues WriteConv(HloBuilder& b, const StableHloNode& n) {
  const int64_t padding = n.attributes().Int("padding");
  return {Convolve(b, n.input(0), n.input(1), n.type(),
                   {.dimensions = "[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]",
                    .stride = n.attributes().Int("stride"),
                    .padding_h = {padding, padding},
                    .padding_w = {padding, padding}})};
}

// dx is the convolution of dy, its pixels `stride` apart, with the kernel
// turned around. `image` and `kernel` are sizes along one axis.
Dims InputGradientPadding(const StableHloNode& n, int64_t image, int64_t dy,
                          int64_t kernel) {
  const int64_t before = kernel - 1 - n.attributes().Int("padding");
  const int64_t spread = n.attributes().Int("stride") * (dy - 1) + 1;
  return {before, image + kernel - 1 - spread - before};
}

HloValues WriteConvInputGradient(HloBuilder& b, const StableHloNode& n) {
  const HloValue& dy = n.input(0);
  const HloValue& w = n.input(1);
  const Shape& x = n.type().shape;
  const HloValue turned = b.Op({.op = "reverse",
                                .operands = {w},
                                .dtype = w.dtype,
                                .shape = w.shape,
                                .attributes = "dimensions = array<i64: 2, 3>"});
  return {Convolve(
      b, dy, turned, n.type(),
      {.dimensions = "[b, 0, 1, f]x[i, o, 0, 1]->[b, 0, 1, f]",
       .padding_h = InputGradientPadding(n, x[1], dy.shape[1], w.shape[2]),
       .padding_w = InputGradientPadding(n, x[2], dy.shape[2], w.shape[3]),
       .image_step = n.attributes().Int("stride")})};
}

// dw is the convolution of x with dy, its pixels `stride` apart. Channels of x
// stand for images, and images for channels that are summed.
Dims WeightGradientPadding(const StableHloNode& n, int64_t image, int64_t dy,
                           int64_t kernel) {
  const int64_t before = n.attributes().Int("padding");
  const int64_t spread = n.attributes().Int("stride") * (dy - 1) + 1;
  return {before, kernel - 1 + spread - image - before};
}

HloValues WriteConvWeightGradient(HloBuilder& b, const StableHloNode& n) {
  const Shape& x = n.input(0).shape;
  const Shape& dy = n.input(1).shape;
  const Shape& w = n.type().shape;
  return {Convolve(b, n.input(0), n.input(1), n.type(),
                   {.dimensions = "[f, 0, 1, b]x[i, 0, 1, o]->[f, b, 0, 1]",
                    .padding_h = WeightGradientPadding(n, x[1], dy[1], w[2]),
                    .padding_w = WeightGradientPadding(n, x[2], dy[2], w[3]),
                    .kernel_step = n.attributes().Int("stride")})};
}

// --- pools ---

std::string WindowAttributes(int64_t window, int64_t stride, int64_t padding) {
  return fmt::format(
      "window_dimensions = array<i64: 1, {0}, {0}, 1>, window_strides = "
      "array<i64: 1, {1}, {1}, 1>, padding = dense<[[0, 0], [{2}, {2}], "
      "[{2}, {2}], [0, 0]]> : tensor<4x2xi64>",
      window, stride, padding);
}

HloValue ReduceWindow(HloBuilder& b, std::string_view op, double first,
                      const HloValue& x, const Shape& result,
                      const std::string& window) {
  return b.Op({.op = "reduce_window",
               .operands = {x, b.Fill(first, x.dtype, Shape({}))},
               .dtype = x.dtype,
               .shape = result,
               .attributes = window,
               .regions = {{.op = op, .dtype = x.dtype}}});
}

std::string WindowOf(const StableHloNode& n) {
  return WindowAttributes(n.attributes().Int("window"),
                          n.attributes().Int("stride"),
                          n.attributes().Int("padding"));
}

constexpr double kLowest = -std::numeric_limits<double>::infinity();

HloValues WriteMaxPool(HloBuilder& b, const StableHloNode& n) {
  return {ReduceWindow(b, "maximum", kLowest, n.input(0), n.type().shape,
                       WindowOf(n))};
}

// inputs: x, dy. The first of equal maxima is selected.
HloValues WriteMaxPoolGradient(HloBuilder& b, const StableHloNode& n) {
  const HloValue x = b.Widen(n.input(0));
  const HloValue dy = b.Widen(n.input(1));
  const HloValue dx =
      b.Op({.op = "select_and_scatter",
            .operands = {x, dy, b.Fill(0.0, x.dtype, Shape({}))},
            .dtype = x.dtype,
            .shape = x.shape,
            .attributes = WindowOf(n),
            .regions = {{.op = "compare", .dtype = x.dtype, .direction = "GE"},
                        {.op = "add", .dtype = x.dtype}}});
  return {b.Convert(dx, n.type().dtype)};
}

// 1 / number of pixels inside of the image, for each window of an axis of
// `size`.
std::vector<double> Shares(const StableHloNode& n, int64_t size,
                           int64_t windows) {
  const int64_t window = n.attributes().Int("window");
  std::vector<double> shares;
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t begin =
        i * n.attributes().Int("stride") - n.attributes().Int("padding");
    const int64_t count =
        std::min(size, begin + window) - std::max<int64_t>(0, begin);
    shares.push_back(1.0 / static_cast<double>(count));
  }
  return shares;
}

// y, of pooled shape, divided by the number of pixels in each window.
HloValue DividedByCounts(HloBuilder& b, const StableHloNode& n,
                         const Shape& image, const HloValue& y) {
  const int64_t rows = y.shape[1];
  const int64_t columns = y.shape[2];
  const std::vector<double> of_row = Shares(n, image[1], rows);
  const std::vector<double> of_column = Shares(n, image[2], columns);
  HostTensor shares(y.dtype, Shape({rows, columns}));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto at = static_cast<size_t>(i * columns + j);
      const double share =
          of_row[static_cast<size_t>(i)] * of_column[static_cast<size_t>(j)];
      if (y.dtype == DType::kF64) {
        shares.MutableSpan<double>()[at] = share;
      } else {
        shares.MutableSpan<float>()[at] = static_cast<float>(share);
      }
    }
  }
  return b.Mul(y, b.BroadcastInDim(b.Constant(shares.view()), y.shape, {1, 2}));
}

HloValues WriteAveragePool(HloBuilder& b, const StableHloNode& n) {
  const HloValue x = b.Widen(n.input(0));
  const HloValue sum =
      ReduceWindow(b, "add", 0.0, x, n.type().shape, WindowOf(n));
  return {b.Convert(DividedByCounts(b, n, x.shape, sum), n.type().dtype)};
}

// inputs: x (its shape only), dy. A pixel's gradient is the sum over a window
// of dy, its pixels `stride` apart.
HloValues WriteAveragePoolGradient(HloBuilder& b, const StableHloNode& n) {
  const Shape& x = n.input(0).shape;
  const HloValue dy = DividedByCounts(b, n, x, b.Widen(n.input(1)));
  const int64_t window = n.attributes().Int("window");
  const int64_t stride = n.attributes().Int("stride");
  const int64_t before = window - 1 - n.attributes().Int("padding");
  const auto behind = [&](int axis) {
    const int64_t spread = stride * (dy.shape[axis] - 1) + 1;
    return x[axis] + window - 1 - spread - before;
  };
  const HloValue spread =
      b.Pad(dy, 0.0, {0, before, before, 0}, {0, behind(1), behind(2), 0},
            {0, stride - 1, stride - 1, 0});
  const HloValue dx =
      ReduceWindow(b, "add", 0.0, spread, x,
                   WindowAttributes(window, /*stride=*/1, /*padding=*/0));
  return {b.Convert(dx, n.type().dtype)};
}

HloValues WriteUpsample(HloBuilder& b, const StableHloNode& n) {
  const HloValue& x = n.input(0);
  const int64_t scale = n.attributes().Int("scale");
  const Shape repeated(
      {x.shape[0], x.shape[1], scale, x.shape[2], scale, x.shape[3]});
  return {
      b.Reshape(b.BroadcastInDim(x, repeated, {0, 1, 3, 5}), n.type().shape)};
}

}  // namespace

void AddImageForms(StableHloForms& forms) {
  forms["Conv2d"] = {&WriteConv};
  forms["Conv2dInputGradient"] = {&WriteConvInputGradient};
  forms["Conv2dWeightGradient"] = {&WriteConvWeightGradient};
  forms["MaxPool2d"] = {&WriteMaxPool};
  forms["MaxPool2dGradient"] = {&WriteMaxPoolGradient};
  forms["AveragePool2d"] = {&WriteAveragePool};
  forms["AveragePool2dGradient"] = {&WriteAveragePoolGradient};
  forms["UpsampleNearest2d"] = {&WriteUpsample};
}

}  // namespace replicant::exporting
