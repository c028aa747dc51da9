#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels/common/element.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

struct RowPlan {
  int64_t rows, columns;
  DType dtype;

  double Load(const std::byte* data, int64_t row, int64_t column) const {
    return kernels::Load(data, dtype, row * columns + column);
  }
  void Store(std::byte* data, int64_t row, int64_t column, double value) const {
    kernels::Store(data, dtype, row * columns + column, value);
  }
};

RowPlan PlanOf(const graph::TensorType& x) {
  const int64_t columns = x.shape[x.shape.rank() - 1];
  return {.rows = x.shape.num_elements() / columns,
          .columns = columns,
          .dtype = x.dtype};
}

// ln sum_j e^x[j] = largest + log_sum, kept apart because a large maximum would
// absorb the digits of the sum
struct LogTotal {
  double largest;
  double log_sum;
};

LogTotal LogTotalOf(const RowPlan& plan, const std::byte* x, int64_t row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < plan.columns; ++k) {
    largest = std::fmax(largest, plan.Load(x, row, k));
  }
  double sum = 0.0;
  for (int64_t k = 0; k < plan.columns; ++k) {
    sum += std::exp(plan.Load(x, row, k) - largest);
  }
  return {largest, std::log(sum)};
}

RunFunction MakeSoftmax(const KernelRequest& request) {
  const RowPlan plan = PlanOf(request.input(0));
  const bool is_log = request.node.op->name == "LogSoftmax";
  return [plan, is_log](const Operands& operands) {
    for (int64_t row = 0; row < plan.rows; ++row) {
      const LogTotal total = LogTotalOf(plan, operands.inputs[0], row);
      for (int64_t k = 0; k < plan.columns; ++k) {
        const double y = plan.Load(operands.inputs[0], row, k) - total.largest -
                         total.log_sum;
        plan.Store(operands.outputs[0], row, k, is_log ? y : std::exp(y));
      }
    }
  };
}

RunFunction MakeCrossEntropy(const KernelRequest& request) {
  const RowPlan plan = PlanOf(request.input(0));
  return [plan](const Operands& operands) {
    for (int64_t row = 0; row < plan.rows; ++row) {
      const LogTotal total = LogTotalOf(plan, operands.inputs[0], row);
      double loss = 0.0;
      for (int64_t k = 0; k < plan.columns; ++k) {
        loss -= plan.Load(operands.inputs[1], row, k) *
                (plan.Load(operands.inputs[0], row, k) - total.largest -
                 total.log_sum);
      }
      Store(operands.outputs[0], plan.dtype, row, loss);
    }
  };
}

RunFunction MakeProjection(const KernelRequest& request) {
  const RowPlan plan = PlanOf(request.input(0));
  const double v_min = request.node.attributes.Float("v_min");
  const double v_max = request.node.attributes.Float("v_max");
  return [plan, v_min, v_max](const Operands& operands) {
    const double gap = (v_max - v_min) / static_cast<double>(plan.columns - 1);
    for (int64_t row = 0; row < plan.rows; ++row) {
      const double reward = Load(operands.inputs[1], plan.dtype, row);
      const double discount = Load(operands.inputs[2], plan.dtype, row);
      for (int64_t k = 0; k < plan.columns; ++k) {
        const double z_k = v_min + static_cast<double>(k) * gap;
        double mass = 0.0;
        for (int64_t j = 0; j < plan.columns; ++j) {
          const double z_j = v_min + static_cast<double>(j) * gap;
          const double moved =
              std::clamp(reward + discount * z_j, v_min, v_max);
          const double share = 1.0 - std::fabs(moved - z_k) / gap;
          // NaN is kept
          mass += plan.Load(operands.inputs[0], row, j) *
                  (share < 0.0 ? 0.0 : share);
        }
        plan.Store(operands.outputs[0], row, k, mass);
      }
    }
  };
}

}  // namespace

void AddLossKernels(HostKernelTable& table) {
  table.emplace("Softmax", &MakeSoftmax);
  table.emplace("LogSoftmax", &MakeSoftmax);
  table.emplace("SoftmaxCrossEntropy", &MakeCrossEntropy);
  table.emplace("CategoricalProjection", &MakeProjection);
}

}  // namespace replicant::kernels::reference
