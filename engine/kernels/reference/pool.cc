#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels/common/element.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

// x [B, H, W, C] -> y [B, YH, YW, C]
struct PoolPlan {
  int64_t b, h, w, c, yh, yw, window, stride, padding;

  // For each element of y: enter(its offset), see(offset in x, place in the
  // window) for each pixel of the window inside the image, leave(its offset).
  template <typename Enter, typename See, typename Leave>
  void ForWindows(const Enter& enter, const See& see,
                  const Leave& leave) const {
    int64_t at = 0;
    for (int64_t n = 0; n < b; ++n) {
      for (int64_t row = 0; row < yh; ++row) {
        for (int64_t column = 0; column < yw; ++column) {
          for (int64_t k = 0; k < c; ++k, ++at) {
            enter(at);
            const int64_t top = row * stride - padding;
            const int64_t left = column * stride - padding;
            for (int64_t i = std::max<int64_t>(0, top);
                 i < std::min(h, top + window); ++i) {
              for (int64_t j = std::max<int64_t>(0, left);
                   j < std::min(w, left + window); ++j) {
                see(((n * h + i) * w + j) * c + k,
                    (i - top) * window + j - left);
              }
            }
            leave(at);
          }
        }
      }
    }
  }
};

PoolPlan PlanOf(const Shape& x, const graph::PoolOptions& options) {
  const Shape y = graph::PooledShape(x, options);
  return {.b = x[0],
          .h = x[1],
          .w = x[2],
          .c = x[3],
          .yh = y[1],
          .yw = y[2],
          .window = options.window,
          .stride = options.stride,
          .padding = options.padding};
}

graph::PoolOptions OptionsOf(const graph::Attributes& attributes) {
  return {.window = attributes.Int("window"),
          .stride = attributes.Int("stride"),
          .padding = attributes.Int("padding")};
}

RunFunction MakeMaxPool(const KernelRequest& request) {
  return MaxPoolOf(request.input(0), OptionsOf(request.node.attributes));
}

RunFunction MakeAveragePool(const KernelRequest& request) {
  const PoolPlan plan =
      PlanOf(request.input(0).shape, OptionsOf(request.node.attributes));
  const DType dtype = request.output().dtype;
  return [plan, dtype](const Operands& operands) {
    double sum = 0.0;
    int64_t count = 0;
    plan.ForWindows(
        [&](int64_t /*at*/) {
          sum = 0.0;
          count = 0;
        },
        [&](int64_t xi, int64_t /*place*/) {
          sum += Load(operands.inputs[0], dtype, xi);
          ++count;
        },
        [&](int64_t at) {
          Store(operands.outputs[0], dtype, at,
                sum / static_cast<double>(count));
        });
  };
}

// inputs: x or, with the attribute "image", places; dy. `sums` collects dx in
// double.
RunFunction MakeMaxPoolGradient(const KernelRequest& request) {
  const PoolPlan plan =
      PlanOf(request.output().shape, OptionsOf(request.node.attributes));
  const DType dtype = request.output().dtype;
  std::vector<double> sums(
      static_cast<size_t>(request.output().shape.num_elements()));
  const bool has_places = request.node.attributes.Has("image");
  return [plan, dtype, has_places, sums](const Operands& operands) mutable {
    std::fill(sums.begin(), sums.end(), 0.0);
    double best = 0.0;
    int64_t best_at = -1;
    int64_t wanted = -1;
    plan.ForWindows(
        [&](int64_t at) {
          best_at = -1;
          if (has_places) wanted = operands.input<uint8_t>(0)[at];
        },
        [&](int64_t xi, int64_t place) {
          if (has_places) {
            if (place == wanted) best_at = xi;
            return;
          }
          const double x = Load(operands.inputs[0], dtype, xi);
          if (best_at < 0 || x > best || std::isnan(x)) {
            best = x;
            best_at = xi;
          }
        },
        [&](int64_t at) {
          sums[static_cast<size_t>(best_at)] +=
              Load(operands.inputs[1], dtype, at);
        });
    for (size_t i = 0; i < sums.size(); ++i) {
      Store(operands.outputs[0], dtype, static_cast<int64_t>(i), sums[i]);
    }
  };
}

// inputs: x (its shape only), dy
RunFunction MakeAveragePoolGradient(const KernelRequest& request) {
  const PoolPlan plan =
      PlanOf(request.output().shape, OptionsOf(request.node.attributes));
  const DType dtype = request.output().dtype;
  std::vector<double> sums(
      static_cast<size_t>(request.output().shape.num_elements()));
  // the number of pixels in each window depends on the shape only
  std::vector<int64_t> counts(
      static_cast<size_t>(request.input(1).shape.num_elements()), 0);
  int64_t current = 0;
  plan.ForWindows([&](int64_t at) { current = at; },
                  [&](int64_t /*xi*/, int64_t /*place*/) {
                    ++counts[static_cast<size_t>(current)];
                  },
                  [](int64_t /*at*/) {});
  return [plan, dtype, sums, counts](const Operands& operands) mutable {
    std::fill(sums.begin(), sums.end(), 0.0);
    double share = 0.0;
    plan.ForWindows(
        [&](int64_t at) {
          share = Load(operands.inputs[1], dtype, at) /
                  static_cast<double>(counts[static_cast<size_t>(at)]);
        },
        [&](int64_t xi, int64_t /*place*/) {
          sums[static_cast<size_t>(xi)] += share;
        },
        [](int64_t /*at*/) {});
    for (size_t i = 0; i < sums.size(); ++i) {
      Store(operands.outputs[0], dtype, static_cast<int64_t>(i), sums[i]);
    }
  };
}

RunFunction MakeUpsample(const KernelRequest& request) {
  const graph::TensorType output = request.output();
  const int64_t scale = request.node.attributes.Int("scale");
  const Shape x = request.input(0).shape;
  return [output, scale, x](const Operands& operands) {
    const Shape& y = output.shape;
    int64_t at = 0;
    for (int64_t n = 0; n < y[0]; ++n) {
      for (int64_t i = 0; i < y[1]; ++i) {
        for (int64_t j = 0; j < y[2]; ++j) {
          for (int64_t k = 0; k < y[3]; ++k) {
            const int64_t from =
                ((n * x[1] + i / scale) * x[2] + j / scale) * x[3] + k;
            Store(operands.outputs[0], output.dtype, at++,
                  Load(operands.inputs[0], output.dtype, from));
          }
        }
      }
    }
  };
}

}  // namespace

RunFunction MaxPoolOf(const graph::TensorType& x,
                      const graph::PoolOptions& options) {
  return [plan = PlanOf(x.shape, options),
          dtype = x.dtype](const Operands& operands) {
    double best = 0.0;
    int64_t best_place = 0;
    const bool has_places = operands.outputs.size() > 1;
    plan.ForWindows(
        [&](int64_t /*at*/) {
          best = -std::numeric_limits<double>::infinity();
          best_place = -1;
        },
        [&](int64_t xi, int64_t place) {
          const double value = Load(operands.inputs[0], dtype, xi);
          // NaN wins, as in PyTorch
          if (best_place < 0 || value > best || std::isnan(value)) {
            best = value;
            best_place = place;
          }
        },
        [&](int64_t at) {
          Store(operands.outputs[0], dtype, at, best);
          if (has_places) {
            operands.output<uint8_t>(1)[at] = static_cast<uint8_t>(best_place);
          }
        });
  };
}

void AddPoolKernels(HostKernelTable& table) {
  table.emplace("MaxPool2d", &MakeMaxPool);
  table.emplace("AveragePool2d", &MakeAveragePool);
  table.emplace("MaxPool2dGradient", &MakeMaxPoolGradient);
  table.emplace("AveragePool2dGradient", &MakeAveragePoolGradient);
  table.emplace("UpsampleNearest2d", &MakeUpsample);
}

}  // namespace replicant::kernels::reference
