#include <algorithm>
#include <cmath>
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
  double mean;
  double variance;
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

// The result of a norm for one element: inputs x, gamma, beta and, if
// `residual` >= 0, input number `residual`.
double NormValue(const NormPlan& plan, const Operands& operands, int64_t group,
                 int64_t element, const Statistics& s, int residual,
                 bool has_relu) {
  const int64_t at = plan.Offset(group, element);
  const int64_t entry = plan.Entry(group, element);
  const double scale = 1.0 / std::sqrt(s.variance + plan.epsilon);
  const double x_hat =
      (Load(operands.inputs[0], plan.dtype, at) - s.mean) * scale;
  double y = x_hat * Load(operands.inputs[1], plan.vector_dtype, entry) +
             Load(operands.inputs[2], plan.vector_dtype, entry);
  if (residual >= 0) {
    y += Load(operands.inputs[static_cast<size_t>(residual)], plan.dtype, at);
  }
  // NaN is kept
  return has_relu && y < 0.0 ? 0.0 : y;
}

RunFunction MakeNorm(const KernelRequest& request, bool is_batch_norm) {
  const NormPlan plan =
      PlanOf(request.input(0), request.input(1), request.node, is_batch_norm);
  const Activation activation(request.node.attributes);
  const int residual = request.node.inputs.size() > 3 ? 3 : -1;
  const bool has_relu = is_batch_norm && request.node.attributes.Bool("relu");
  return [=](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = StatisticsOf(plan, operands.inputs[0], group);
      const double scale = 1.0 / std::sqrt(s.variance + plan.epsilon);
      for (int64_t e = 0; e < plan.size; ++e) {
        const double y =
            NormValue(plan, operands, group, e, s, residual, has_relu);
        // rounded before the activation, like the result of a separate node
        Store(operands.outputs[0], plan.dtype, plan.Offset(group, e),
              activation(graph::RoundToDType(y, plan.dtype)));
      }
      Store(operands.outputs[1], plan.vector_dtype, group, s.mean);
      Store(operands.outputs[2], plan.vector_dtype, group,
            plan.is_batch_norm ? s.variance : scale);
    }
  };
}

// inputs and outputs as in graph/ops/norm.cc.
//
// With x^ = (x - mean) * scale and d = dy * gamma, over a group of n:
//   dx = scale * (d - sum(d) / n - x^ * sum(d x^) / n)
//   dgamma = sum(dy x^), dbeta = sum(dy)
// where dy is 0 for what a relu has cut off.
RunFunction MakeNormGradient(const KernelRequest& request, bool is_batch_norm) {
  const NormPlan plan =
      PlanOf(request.input(1), request.input(2), request.node, is_batch_norm);
  const auto entries =
      static_cast<size_t>(request.input(2).shape.num_elements());
  std::vector<double> dgamma(entries);
  std::vector<double> dbeta(entries);
  const bool has_relu = is_batch_norm && request.node.attributes.Bool("relu");
  const bool has_residual = request.node.outputs.size() > 3;
  return [=](const Operands& operands) mutable {
    // dy, x and y; the others are vectors
    const auto load = [&](size_t input, int64_t at) {
      const bool is_image = input < 2 || input == 6;
      return Load(operands.inputs[input],
                  is_image ? plan.dtype : plan.vector_dtype, at);
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
        const double dy = load(0, at);
        if (!has_relu) return dy;
        const double y = has_residual
                             ? load(6, at)
                             : x_hat(at) * load(2, entry) + load(3, entry);
        return y > 0.0 ? dy : 0.0;
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

// Moments [2, C] of operand `moments`.
Statistics LoadMoments(const NormPlan& plan, const std::byte* moments,
                       int64_t channel) {
  return {.mean = Load(moments, plan.vector_dtype, channel),
          .variance = Load(moments, plan.vector_dtype, plan.groups + channel)};
}

RunFunction MakeBatchMoments(const KernelRequest& request) {
  const graph::TensorType& x = request.input(0);
  const int64_t channels = x.shape[x.shape.rank() - 1];
  const NormPlan plan{.groups = channels,
                      .size = x.shape.num_elements() / channels,
                      .group_stride = 1,
                      .element_stride = channels,
                      .is_batch_norm = true,
                      .example_size = 1,
                      .epsilon = 0.0,
                      .dtype = x.dtype,
                      .vector_dtype = request.output().dtype};
  return [plan](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = StatisticsOf(plan, operands.inputs[0], group);
      Store(operands.outputs[0], plan.vector_dtype, group, s.mean);
      Store(operands.outputs[0], plan.vector_dtype, plan.groups + group,
            s.variance);
    }
  };
}

RunFunction MakeBatchNormApply(const KernelRequest& request) {
  const NormPlan plan = PlanOf(request.input(0), request.input(1), request.node,
                               /*is_batch_norm=*/true);
  const int residual = request.node.inputs.size() > 4 ? 4 : -1;
  const bool has_relu = request.node.attributes.Bool("relu");
  return [=](const Operands& operands) {
    for (int64_t group = 0; group < plan.groups; ++group) {
      const Statistics s = LoadMoments(plan, operands.inputs[3], group);
      for (int64_t e = 0; e < plan.size; ++e) {
        Store(operands.outputs[0], plan.dtype, plan.Offset(group, e),
              NormValue(plan, operands, group, e, s, residual, has_relu));
      }
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
  table.emplace("BatchNorm", [](const KernelRequest& request) {
    return MakeNorm(request, /*is_batch_norm=*/true);
  });
  table.emplace("BatchNormGradient", [](const KernelRequest& request) {
    return MakeNormGradient(request, /*is_batch_norm=*/true);
  });
  table.emplace("BatchMoments", &MakeBatchMoments);
  table.emplace("BatchNormApply", &MakeBatchNormApply);
  table.emplace("BatchNormApplyGradient", &MakeBatchNormApplyGradient);
}

}  // namespace replicant::kernels::reference
