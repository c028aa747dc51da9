#include "engine/graph/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/kernels/common/element.h"
#include "engine/kernels/common/program.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

// A norm as groups of elements that share their statistics. Layer norm: a group
// is a row, and gamma is indexed within the row. Batch norm: a group is a
// channel, and gamma belongs to the group, or to group and example.
struct NormPlan {
  int64_t groups, size;
  // offset of element e of group g: g * group_stride + e * element_stride
  int64_t group_stride, element_stride;
  bool is_batch_norm;
  // Batch norm: elements of a group that share an entry of gamma.
  int64_t example_size;
  double epsilon;
  DType dtype;
  // of gamma, beta and statistics
  DType vector_dtype;

  int64_t Offset(int64_t group, int64_t element) const {
    return group * group_stride + element * element_stride;
  }
  // index of an element's entry of gamma and beta
  int64_t Entry(int64_t group, int64_t element) const {
    return is_batch_norm ? element / example_size * groups + group : element;
  }
};

NormPlan PlanOf(const graph::TensorType& x, const graph::TensorType& gamma,
                const graph::Node& node, bool is_batch_norm) {
  const int64_t channels = x.shape[x.shape.rank() - 1];
  const int64_t rows = channels == 0 ? 0 : x.shape.num_elements() / channels;
  return {.groups = is_batch_norm ? channels : rows,
          .size = is_batch_norm ? rows : channels,
          .group_stride = is_batch_norm ? 1 : channels,
          .element_stride = is_batch_norm ? channels : 1,
          .is_batch_norm = is_batch_norm,
          .example_size = gamma.shape.rank() == 2 ? rows / x.shape[0] : rows,
          .epsilon = node.attributes.Float("epsilon"),
          .dtype = x.dtype,
          .vector_dtype = gamma.dtype};
}

struct Statistics {
  double mean = 0.0;
  double variance = 0.0;
};

// Two passes, because a difference of squares loses all digits if the mean is
// large against the standard deviation.
Statistics StatisticsOf(const NormPlan& plan, const std::byte* x,
                        int64_t group) {
  const auto count = static_cast<double>(plan.size);
  double sum = 0.0;
  for (int64_t e = 0; e < plan.size; ++e) {
    sum += Load(x, plan.dtype, plan.Offset(group, e));
  }
  const double mean = sum / count;
  double squares = 0.0;
  for (int64_t e = 0; e < plan.size; ++e) {
    const double d = Load(x, plan.dtype, plan.Offset(group, e)) - mean;
    squares += d * d;
  }
  return {mean, squares / count};
}

// x^ gamma + beta of one element, inputs x, gamma and beta from `x` on.
double Normalised(const NormPlan& plan, const Operands& operands, size_t x,
                  int64_t group, int64_t element, const Statistics& s,
                  double epsilon) {
  const int64_t entry = plan.Entry(group, element);
  const double scale = 1.0 / std::sqrt(s.variance + epsilon);
  const double x_hat =
      (Load(operands.inputs[x], plan.dtype, plan.Offset(group, element)) -
       s.mean) *
      scale;
  return x_hat * Load(operands.inputs[x + 1], plan.vector_dtype, entry) +
         Load(operands.inputs[x + 2], plan.vector_dtype, entry);
}

// What is added to a norm's result.
struct Residual {
  // In double, as the norm itself uses them, not the stored ones.
  Statistics GroupStatistics(const NormPlan& plan, const Operands& operands,
                             int64_t group) const {
    if (!has_norm) return {};
    return StatisticsOf(plan, operands.inputs[static_cast<size_t>(input)],
                        group);
  }
  double At(const NormPlan& plan, const Operands& operands, int64_t group,
            int64_t element, const Statistics& s) const {
    const auto first = static_cast<size_t>(input);
    if (!has_norm) {
      return Load(operands.inputs[first], plan.dtype,
                  plan.Offset(group, element));
    }
    return graph::RoundToDType(
        Normalised(plan, operands, first, group, element, s, epsilon),
        plan.dtype);
  }

  int input = -1;  // -1: nothing
  // It is normalised; the inputs behind it are gamma and beta.
  bool has_norm = false;
  double epsilon = 0.0;
};

Residual ResidualOf(const graph::Node& norm, size_t input) {
  if (norm.inputs.size() <= input) return {};
  const bool has_norm = norm.attributes.Has("residual_epsilon");
  return {
      .input = static_cast<int>(input),
      .has_norm = has_norm,
      .epsilon = has_norm ? norm.attributes.Float("residual_epsilon") : 0.0};
}

// Stores the results of a norm for a channel: inputs x, gamma, beta and a
// residual.
void StoreGroup(const NormPlan& plan, const Operands& operands, int64_t group,
                const Statistics& s, const Residual& residual, bool has_relu,
                const Activation& activation) {
  const Statistics of_residual =
      residual.GroupStatistics(plan, operands, group);
  for (int64_t e = 0; e < plan.size; ++e) {
    double y = Normalised(plan, operands, 0, group, e, s, plan.epsilon);
    if (residual.input >= 0) {
      y += residual.At(plan, operands, group, e, of_residual);
    }
    // NaN is kept
    if (has_relu && y < 0.0) y = 0.0;
    // rounded before the activation, like the result of a separate node
    Store(operands.outputs[0], plan.dtype, plan.Offset(group, e),
          activation(graph::RoundToDType(y, plan.dtype)));
  }
}

// The mask of a relu's result (graph/ops/norm.h).
void StoreMask(const graph::TensorType& y, const std::byte* values,
               std::byte* mask) {
  const auto per_byte = static_cast<int64_t>(16 / DTypeSize(y.dtype));
  for (int64_t b = 0; b < y.shape.num_elements() / per_byte; ++b) {
    int bits = 0;
    for (int64_t i = 0; i < per_byte; ++i) {
      if (Load(values, y.dtype, b * per_byte + i) > 0.0) bits |= 1 << i;
    }
    mask[b] = static_cast<std::byte>(bits);
  }
}

RunFunction MakeNorm(const KernelRequest& request, bool is_batch_norm) {
  const NormPlan plan =
      PlanOf(request.input(0), request.input(1), request.node, is_batch_norm);
  const Activation activation(request.node.attributes);
  const Residual residual = ResidualOf(request.node, 3);
  const bool has_relu = is_batch_norm && request.node.attributes.Bool("relu");
  return [=, type = request.output()](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = StatisticsOf(plan, operands.inputs[0], group);
      const double scale = 1.0 / std::sqrt(s.variance + plan.epsilon);
      StoreGroup(plan, operands, group, s, residual, has_relu, activation);
      Store(operands.outputs[1], plan.vector_dtype, group, s.mean);
      Store(operands.outputs[2], plan.vector_dtype, group,
            plan.is_batch_norm ? s.variance : scale);
    }
    if (operands.outputs.size() > 3) {
      StoreMask(type, operands.outputs[0], operands.outputs[3]);
    }
  };
}

RunFunction MakeBatchNorm(const KernelRequest& request) {
  RunFunction norm = MakeNorm(request, /*is_batch_norm=*/true);
  const graph::Attributes& attributes = request.node.attributes;
  if (!attributes.Has("pool_window")) return norm;
  return [norm = std::move(norm),
          pool = MaxPoolOf(request.input(0),
                           {.window = attributes.Int("pool_window"),
                            .stride = attributes.Int("pool_stride"),
                            .padding = attributes.Int("pool_padding")}),
          y = std::vector<std::byte>(request.input(0).SizeBytes()),
          own = Operands{.inputs = std::vector<const std::byte*>(3),
                         .outputs = std::vector<std::byte*>(3)},
          behind = Operands{.inputs = std::vector<const std::byte*>(1),
                            .outputs = std::vector<std::byte*>(2)}](
             const Operands& operands) mutable {
    own.inputs = operands.inputs;
    own.outputs = {y.data(), operands.outputs[1], operands.outputs[2]};
    norm(own);
    behind.inputs[0] = y.data();
    behind.outputs = {operands.outputs[0], operands.outputs[3]};
    pool(behind);
  };
}

// The images that a gradient of batch norm may have besides x.
struct GradientParts {
  double LoadDy(const Operands& operands, int64_t at) const {
    const double dy = LoadInput(operands, 0, at);
    if (inputs.second_dy < 0) return dy;
    return graph::RoundToDType(dy + LoadInput(operands, inputs.second_dy, at),
                               dtype);
  }
  // Whether element `at` of a result with a residual is positive.
  bool IsPositive(const Operands& operands, int64_t at) const {
    if (inputs.mask < 0) return LoadInput(operands, inputs.y, at) > 0.0;
    const auto per_byte = static_cast<int64_t>(16 / DTypeSize(dtype));
    const std::byte bits =
        operands.inputs[static_cast<size_t>(inputs.mask)][at / per_byte];
    return (std::to_integer<int>(bits) >> (at % per_byte) & 1) != 0;
  }
  double LoadInput(const Operands& operands, int input, int64_t at) const {
    return Load(operands.inputs[static_cast<size_t>(input)], dtype, at);
  }

  graph::BatchNormGradientInputs inputs;
  DType dtype = DType::kF32;
};

// inputs and outputs as in graph/ops/norm.cc.
//
// With x^ = (x - mean) * scale and d = dy * gamma, over a group of n:
//   dx = scale * (d - sum(d) / n - x^ * sum(d x^) / n)
//   dgamma = sum(dy x^), dbeta = sum(dy)
// where dy is 0 for what a relu has cut off, and the rounded sum of its parts.
RunFunction NormGradientOf(const NormPlan& plan, size_t entries, bool has_relu,
                           bool has_residual, const GradientParts& parts) {
  const bool is_batch_norm = plan.is_batch_norm;
  std::vector<double> dgamma(entries);
  std::vector<double> dbeta(entries);
  return [=](const Operands& operands) mutable {
    // dy and x; the others are vectors
    const auto load = [&](size_t input, int64_t at) {
      return Load(operands.inputs[input],
                  input < 2 ? plan.dtype : plan.vector_dtype, at);
    };
    std::fill(dgamma.begin(), dgamma.end(), 0.0);
    std::fill(dbeta.begin(), dbeta.end(), 0.0);
    const auto count = static_cast<double>(plan.size);
    for (int64_t group = 0; group < plan.groups; ++group) {
      const double mean = load(is_batch_norm ? 4 : 3, group);
      const double scale = is_batch_norm
                               ? 1.0 / std::sqrt(load(5, group) + plan.epsilon)
                               : load(4, group);
      const auto x_hat = [&](int64_t at) {
        return (load(1, at) - mean) * scale;
      };
      // dy, masked by the relu
      const auto gradient = [&](int64_t at, int64_t entry) {
        const double dy = parts.LoadDy(operands, at);
        if (!has_relu) return dy;
        const bool passes =
            has_residual ? parts.IsPositive(operands, at)
                         : x_hat(at) * load(2, entry) + load(3, entry) > 0.0;
        return passes ? dy : 0.0;
      };
      double sum_d = 0.0;
      double sum_dx_hat = 0.0;
      for (int64_t e = 0; e < plan.size; ++e) {
        const int64_t at = plan.Offset(group, e);
        const int64_t entry = plan.Entry(group, e);
        const double dy = gradient(at, entry);
        const double d = dy * load(2, entry);
        sum_d += d;
        sum_dx_hat += d * x_hat(at);
        dgamma[static_cast<size_t>(entry)] += dy * x_hat(at);
        dbeta[static_cast<size_t>(entry)] += dy;
      }
      for (int64_t e = 0; e < plan.size; ++e) {
        const int64_t at = plan.Offset(group, e);
        const int64_t entry = plan.Entry(group, e);
        const double dy = gradient(at, entry);
        const double d = dy * load(2, entry);
        Store(operands.outputs[0], plan.dtype, at,
              scale * (d - sum_d / count - x_hat(at) * sum_dx_hat / count));
        if (has_residual) Store(operands.outputs[3], plan.dtype, at, dy);
      }
    }
    for (size_t entry = 0; entry < entries; ++entry) {
      const auto at = static_cast<int64_t>(entry);
      Store(operands.outputs[1], plan.vector_dtype, at, dgamma[entry]);
      Store(operands.outputs[2], plan.vector_dtype, at, dbeta[entry]);
    }
  };
}

RunFunction MakeNormGradient(const KernelRequest& request, bool is_batch_norm) {
  NormPlan plan =
      PlanOf(request.input(1), request.input(2), request.node, is_batch_norm);
  const auto entries =
      static_cast<size_t>(request.input(2).shape.num_elements());
  const GradientParts parts{
      .inputs = graph::BatchNormGradientInputs(request.node),
      .dtype = plan.dtype};
  RunFunction gradient = NormGradientOf(
      plan, entries, is_batch_norm && request.node.attributes.Bool("relu"),
      /*has_residual=*/request.node.outputs.size() > 3, parts);
  if (parts.inputs.residual < 0) return gradient;
  // the residual's norm, without a relu, whose dy is output 3
  plan.epsilon = request.node.attributes.Float("residual_epsilon");
  RunFunction second = NormGradientOf(plan, entries, /*has_relu=*/false,
                                      /*has_residual=*/false,
                                      {.inputs = {}, .dtype = plan.dtype});
  return [gradient = std::move(gradient), second = std::move(second),
          first = static_cast<size_t>(parts.inputs.residual),
          own = Operands{.inputs = std::vector<const std::byte*>(6),
                         .outputs = std::vector<std::byte*>(3)}](
             const Operands& operands) mutable {
    gradient(operands);
    own.inputs[0] = operands.outputs[3];
    own.inputs[1] = operands.inputs[first];      // x
    own.inputs[2] = operands.inputs[first + 1];  // gamma
    own.inputs[4] = operands.inputs[first + 2];  // mean
    own.inputs[5] = operands.inputs[first + 3];  // variance
    for (size_t i = 0; i < 3; ++i) own.outputs[i] = operands.outputs[4 + i];
    second(own);
  };
}

// Moments [2, C] of operand `moments`.
Statistics LoadMoments(const NormPlan& plan, const std::byte* moments,
                       int64_t channel) {
  return {.mean = Load(moments, plan.vector_dtype, channel),
          .variance = Load(moments, plan.vector_dtype, plan.groups + channel)};
}

// The channels of input 0, for statistics of the output's dtype.
NormPlan ChannelsOf(const KernelRequest& request) {
  const graph::TensorType& x = request.input(0);
  const int64_t channels = x.shape[x.shape.rank() - 1];
  return {.groups = channels,
          .size = x.shape.num_elements() / channels,
          .group_stride = 1,
          .element_stride = channels,
          .is_batch_norm = true,
          .example_size = 1,
          .epsilon = 0.0,
          .dtype = x.dtype,
          .vector_dtype = request.output().dtype};
}

RunFunction MakeBatchMoments(const KernelRequest& request) {
  const NormPlan plan = ChannelsOf(request);
  return [plan](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = StatisticsOf(plan, operands.inputs[0], group);
      Store(operands.outputs[0], plan.vector_dtype, group, s.mean);
      Store(operands.outputs[0], plan.vector_dtype, plan.groups + group,
            s.variance);
    }
  };
}

// x -> mean, variance
RunFunction MakeBatchStatistics(const KernelRequest& request) {
  const NormPlan plan = ChannelsOf(request);
  return [plan](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = StatisticsOf(plan, operands.inputs[0], group);
      Store(operands.outputs[0], plan.vector_dtype, group, s.mean);
      Store(operands.outputs[1], plan.vector_dtype, group, s.variance);
    }
  };
}

RunFunction MakeBatchNormApply(const KernelRequest& request) {
  const NormPlan plan = PlanOf(request.input(0), request.input(1), request.node,
                               /*is_batch_norm=*/true);
  const Residual residual = ResidualOf(request.node, 4);
  const bool has_relu = request.node.attributes.Bool("relu");
  return [=](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = LoadMoments(plan, operands.inputs[3], group);
      StoreGroup(plan, operands, group, s, residual, has_relu,
                 Activation(graph::Attributes()));
    }
  };
}

// inputs: dy, x, gamma, beta, moments, perhaps y; outputs: dgamma, dbeta,
// dmoments, perhaps dz. With x^ = (x - mean) * scale and dz = dy behind the
// relu, over a channel:
//   dgamma = sum(dz x^), dbeta = sum(dz), each over what shares the entry
//   dmean = -scale sum(gamma dz), dvariance = -scale^2 / 2 sum(gamma dz x^)
RunFunction MakeBatchNormApplyGradient(const KernelRequest& request) {
  const NormPlan plan = PlanOf(request.input(1), request.input(2), request.node,
                               /*is_batch_norm=*/true);
  const auto entries =
      static_cast<size_t>(request.input(2).shape.num_elements());
  std::vector<double> dgamma(entries);
  std::vector<double> dbeta(entries);
  const bool has_relu = request.node.attributes.Bool("relu");
  const bool has_y = request.node.inputs.size() > 5;
  return [=](const Operands& operands) mutable {
    // dy, x and y; the others are vectors
    const auto load = [&](size_t input, int64_t at) {
      const bool is_image = input < 2 || input == 5;
      return Load(operands.inputs[input],
                  is_image ? plan.dtype : plan.vector_dtype, at);
    };
    std::fill(dgamma.begin(), dgamma.end(), 0.0);
    std::fill(dbeta.begin(), dbeta.end(), 0.0);
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = LoadMoments(plan, operands.inputs[4], group);
      const double scale = 1.0 / std::sqrt(s.variance + plan.epsilon);
      double sum_d = 0.0;
      double sum_dx_hat = 0.0;
      for (int64_t e = 0; e < plan.size; ++e) {
        const int64_t at = plan.Offset(group, e);
        const int64_t entry = plan.Entry(group, e);
        const double x_hat = (load(1, at) - s.mean) * scale;
        double dz = load(0, at);
        if (has_relu) {
          const double y =
              has_y ? load(5, at) : x_hat * load(2, entry) + load(3, entry);
          if (!(y > 0.0)) dz = 0.0;
          Store(operands.outputs[3], plan.dtype, at, dz);
        }
        sum_d += dz * load(2, entry);
        sum_dx_hat += dz * load(2, entry) * x_hat;
        dgamma[static_cast<size_t>(entry)] += dz * x_hat;
        dbeta[static_cast<size_t>(entry)] += dz;
      }
      Store(operands.outputs[2], plan.vector_dtype, group, -scale * sum_d);
      Store(operands.outputs[2], plan.vector_dtype, plan.groups + group,
            -0.5 * scale * scale * sum_dx_hat);
    }
    for (size_t entry = 0; entry < entries; ++entry) {
      const auto at = static_cast<int64_t>(entry);
      Store(operands.outputs[0], plan.vector_dtype, at, dgamma[entry]);
      Store(operands.outputs[1], plan.vector_dtype, at, dbeta[entry]);
    }
  };
}

}  // namespace

void AddNormKernels(HostKernelTable& table) {
  table.emplace("LayerNorm", [](const KernelRequest& request) {
    return MakeNorm(request, /*is_batch_norm=*/false);
  });
  table.emplace("LayerNormGradient", [](const KernelRequest& request) {
    return MakeNormGradient(request, /*is_batch_norm=*/false);
  });
  table.emplace("BatchNorm", &MakeBatchNorm);
  table.emplace("BatchNormGradient", [](const KernelRequest& request) {
    return MakeNormGradient(request, /*is_batch_norm=*/true);
  });
  table.emplace("BatchMoments", &MakeBatchMoments);
  table.emplace("BatchStatistics", &MakeBatchStatistics);
  table.emplace("BatchNormApply", &MakeBatchNormApply);
  table.emplace("BatchNormApplyGradient", &MakeBatchNormApplyGradient);
}

}  // namespace replicant::kernels::reference
