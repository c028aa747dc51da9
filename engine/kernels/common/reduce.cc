#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels/common/element.h"
#include "engine/kernels/common/host_kernel.h"

namespace replicant::kernels {
namespace {

// The loops of a reduction: the kept indices outside, the reduced ones inside.
struct ReducePlan {
  struct Axis {
    int64_t size;
    int64_t stride;
  };

  std::vector<Axis> kept;
  std::vector<Axis> reduced;
  int64_t num_kept = 1;
  int64_t num_reduced = 1;
  DType dtype = DType::kF32;  // of the elements
  DType result_dtype = DType::kF32;
};

ReducePlan PlanOf(const KernelRequest& request) {
  ReducePlan plan{.dtype = request.input(0).dtype,
                  .result_dtype = request.output().dtype};
  const Shape& shape = request.input(0).shape;
  const Shape::Strides strides = shape.RowMajorStrides();
  const std::vector<int64_t>& axes = request.node.attributes.Ints("axes");
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const ReducePlan::Axis entry{shape[axis],
                                 strides[static_cast<size_t>(axis)]};
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      plan.reduced.push_back(entry);
      plan.num_reduced *= entry.size;
    } else {
      plan.kept.push_back(entry);
      plan.num_kept *= entry.size;
    }
  }
  return plan;
}

// Offset of the i-th index over `axes`, last axis fastest.
int64_t OffsetOf(const std::vector<ReducePlan::Axis>& axes, int64_t i) {
  int64_t offset = 0;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    offset += (i % axis->size) * axis->stride;
    i /= axis->size;
  }
  return offset;
}

// `fold` takes the value so far and the next element. `finish` takes the last
// value and the number of elements.
template <typename Fold, typename Finish>
RunFunction MakeReduction(const KernelRequest& request, double start, Fold fold,
                          Finish finish) {
  const ReducePlan plan = PlanOf(request);
  return [plan, start, fold, finish](const Operands& operands) {
    for (int64_t i = 0; i < plan.num_kept; ++i) {
      const int64_t base = OffsetOf(plan.kept, i);
      double value = start;
      for (int64_t j = 0; j < plan.num_reduced; ++j) {
        value = fold(value, Load(operands.inputs[0], plan.dtype,
                                 base + OffsetOf(plan.reduced, j)));
      }
      Store(operands.outputs[0], plan.result_dtype, i,
            finish(value, plan.num_reduced));
    }
  };
}

double Unchanged(double value, int64_t /*count*/) { return value; }

RunFunction MakeSum(const KernelRequest& request) {
  return MakeReduction(
      request, 0.0, [](double sum, double x) { return sum + x; }, &Unchanged);
}

RunFunction MakeMean(const KernelRequest& request) {
  return MakeReduction(
      request, 0.0, [](double sum, double x) { return sum + x; },
      [](double sum, int64_t count) {
        return sum / static_cast<double>(count);
      });
}

// NaN is kept, as by the elementwise op.
RunFunction MakeMax(const KernelRequest& request) {
  return MakeReduction(
      request, -std::numeric_limits<double>::infinity(),
      [](double best, double x) {
        return graph::EvaluateScalarOp(graph::ScalarOp::kMaximum, best, x, 0.0,
                                       0.0, 0.0);
      },
      &Unchanged);
}

RunFunction MakeMin(const KernelRequest& request) {
  return MakeReduction(
      request, std::numeric_limits<double>::infinity(),
      [](double best, double x) {
        return graph::EvaluateScalarOp(graph::ScalarOp::kMinimum, best, x, 0.0,
                                       0.0, 0.0);
      },
      &Unchanged);
}

RunFunction MakeArgMax(const KernelRequest& request) {
  const graph::TensorType& input = request.input(0);
  const int64_t columns = input.shape[input.shape.rank() - 1];
  const int64_t rows = request.output().shape.num_elements();
  return [input, rows, columns](const Operands& operands) {
    for (int64_t row = 0; row < rows; ++row) {
      int64_t best = 0;
      for (int64_t k = 1; k < columns; ++k) {
        if (Load(operands.inputs[0], input.dtype, row * columns + k) >
            Load(operands.inputs[0], input.dtype, row * columns + best)) {
          best = k;
        }
      }
      operands.output<int64_t>()[row] = best;
    }
  };
}

}  // namespace

void AddReduceKernels(HostKernelTable& table) {
  table.emplace("ReduceSum", &MakeSum);
  table.emplace("ReduceMean", &MakeMean);
  table.emplace("ReduceMax", &MakeMax);
  table.emplace("ReduceMin", &MakeMin);
  table.emplace("ArgMax", &MakeArgMax);
}

}  // namespace replicant::kernels
