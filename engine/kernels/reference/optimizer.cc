#include "engine/graph/ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/common/element.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

// The variables of an update: input g * count + i is tensor i of group g.
struct GroupPlan {
  // A scalar of the update, input `index`.
  double Scalar(const Operands& operands, size_t index) const {
    return Load(operands.inputs[index], graph::ScalarDType(types[0].dtype), 0);
  }

  size_t count;
  std::vector<graph::TensorType> types;
  graph::UpdatePart part;
};

GroupPlan PlanOf(const KernelRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  GroupPlan plan{.count = static_cast<size_t>(attributes.Int("count")),
                 .part = graph::UpdatePartOf(attributes)};
  for (size_t i = 0; i < plan.count; ++i)
    plan.types.push_back(request.input(i));
  return plan;
}

// Calls visit(tensor number, its dtype, element) for all elements of the node's
// part of the update.
template <typename Visit>
void ForElements(const GroupPlan& plan, const Visit& visit) {
  int64_t size = 0;
  for (const auto& type : plan.types) size += type.shape.num_elements();
  const int64_t begin = size * plan.part.index / plan.part.count;
  const int64_t end = size * (plan.part.index + 1) / plan.part.count;
  // of the tensor, among the elements of all
  int64_t first = 0;
  for (size_t i = 0; i < plan.count; ++i) {
    const int64_t n = plan.types[i].shape.num_elements();
    for (int64_t e = std::max<int64_t>(begin - first, 0);
         e < std::min(n, end - first); ++e) {
      visit(i, plan.types[i].dtype, e);
    }
    first += n;
  }
}

// The gradients of a node's parameters.
struct Gradients {
  explicit Gradients(const KernelRequest& request)
      : plan(PlanOf(request)), first(*graph::FirstGradient(request.node)) {}

  // The gradient of element e of tensor i.
  double At(const Operands& operands, size_t i, int64_t e) const {
    const DType dtype = plan.types[i].dtype;
    double sum = Load(operands.inputs[first + i], dtype, e);
    if (plan.part.num_gradients == 1) return sum;
    for (int64_t j = 1; j < plan.part.num_gradients; ++j) {
      const size_t input = first + static_cast<size_t>(j) * plan.count + i;
      sum = graph::RoundToDType(sum + Load(operands.inputs[input], dtype, e),
                                dtype);
    }
    const double factor = graph::RoundToDType(plan.part.gradient_factor, dtype);
    return graph::RoundToDType(sum * factor, dtype);
  }

  // The index after all groups.
  size_t first_scalar() const {
    return first + static_cast<size_t>(plan.part.num_gradients) * plan.count;
  }

  GroupPlan plan;
  size_t first;
};

// inputs: parameters, momenta (if any), gradients, learning rate, scale
RunFunction MakeSgd(const KernelRequest& request) {
  const GroupPlan plan = PlanOf(request);
  const graph::Attributes& attributes = request.node.attributes;
  const double momentum = attributes.Float("momentum");
  const double weight_decay = attributes.Float("weight_decay");
  const bool nesterov = attributes.Bool("nesterov");
  const size_t n = plan.count;
  const Gradients gradients(request);
  const size_t scalars = gradients.first_scalar();
  return [=](const Operands& operands) {
    const double rate = plan.Scalar(operands, scalars);
    const double scale = plan.Scalar(operands, scalars + 1);
    ForElements(plan, [&](size_t i, DType dtype, int64_t e) {
      const double p = Load(operands.inputs[i], dtype, e);
      const double d = scale * gradients.At(operands, i, e) + weight_decay * p;
      double direction = d;
      if (momentum != 0.0) {
        const double u = momentum * Load(operands.inputs[n + i], dtype, e) + d;
        direction = nesterov ? d + momentum * u : u;
        Store(operands.outputs[n + i], dtype, e, u);
      }
      Store(operands.outputs[i], dtype, e, p - rate * direction);
    });
  };
}

// inputs: parameters, m, v, gradients, learning rate, scale, step
RunFunction MakeAdam(const KernelRequest& request) {
  const GroupPlan plan = PlanOf(request);
  const graph::Attributes& attributes = request.node.attributes;
  const double beta1 = attributes.Float("beta1");
  const double beta2 = attributes.Float("beta2");
  const double epsilon = attributes.Float("epsilon");
  const double weight_decay = attributes.Float("weight_decay");
  const size_t n = plan.count;
  const Gradients gradients(request);
  const size_t scalars = gradients.first_scalar();
  return [=](const Operands& operands) {
    const double rate = plan.Scalar(operands, scalars);
    const double scale = plan.Scalar(operands, scalars + 1);
    const double t =
        static_cast<double>(operands.input<int64_t>(scalars + 2)[0]) + 1.0;
    const double correction1 = 1.0 - std::pow(beta1, t);
    const double correction2 = 1.0 - std::pow(beta2, t);
    ForElements(plan, [&](size_t i, DType dtype, int64_t e) {
      const double g = scale * gradients.At(operands, i, e);
      const double m =
          beta1 * Load(operands.inputs[n + i], dtype, e) + (1.0 - beta1) * g;
      const double v = beta2 * Load(operands.inputs[2 * n + i], dtype, e) +
                       (1.0 - beta2) * g * g;
      const double p =
          Load(operands.inputs[i], dtype, e) * (1.0 - rate * weight_decay);
      Store(operands.outputs[n + i], dtype, e, m);
      Store(operands.outputs[2 * n + i], dtype, e, v);
      Store(operands.outputs[i], dtype, e,
            p - rate * (m / correction1) /
                    (std::sqrt(v / correction2) + epsilon));
    });
  };
}

// inputs: targets, sources, rate
RunFunction MakeMovingAverage(const KernelRequest& request) {
  const GroupPlan plan = PlanOf(request);
  return [plan](const Operands& operands) {
    const double rate = plan.Scalar(operands, 2 * plan.count);
    // at rate 0 an infinite source must not reach the target
    if (rate == 0.0) return;
    ForElements(plan, [&](size_t i, DType dtype, int64_t e) {
      const double target = Load(operands.inputs[i], dtype, e);
      const double source = Load(operands.inputs[plan.count + i], dtype, e);
      Store(operands.outputs[i], dtype, e,
            rate == 1.0 ? source : (1.0 - rate) * target + rate * source);
    });
  };
}

RunFunction MakeGlobalNorm(const KernelRequest& request) {
  std::vector<graph::TensorType> types;
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    types.push_back(request.input(i));
  }
  return [types](const Operands& operands) {
    double sum = 0.0;
    for (size_t i = 0; i < types.size(); ++i) {
      for (int64_t e = 0; e < types[i].shape.num_elements(); ++e) {
        const double x = Load(operands.inputs[i], types[i].dtype, e);
        sum += x * x;
      }
    }
    Store(operands.outputs[0], graph::ScalarDType(types[0].dtype), 0,
          std::sqrt(sum));
  };
}

}  // namespace

void AddOptimizerKernels(HostKernelTable& table) {
  table.emplace("SgdUpdate", &MakeSgd);
  table.emplace("AdamUpdate", &MakeAdam);
  table.emplace("MovingAverageUpdate", &MakeMovingAverage);
  table.emplace("GlobalNorm", &MakeGlobalNorm);
}

}  // namespace replicant::kernels::reference
