#include <fmt/format.h>

#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/optimizer.h"
#include "core/graph/ops/state.h"
#include "tests/core/kernels/op_cases.h"

namespace replicant::testing {

using graph::Output;
using graph::VariableId;
using Outputs = std::vector<Output>;

void AddUpdateCases(std::vector<OpCase>& cases) {
  // 3 parameters, one of more than a chunk
  const std::vector<Shape> shapes = {Shape({70, 131}), Shape({131}), Shape({})};
  const auto variables = [shapes](CaseBuilder& b, double low, double high) {
    std::vector<VariableId> ids;
    ids.reserve(shapes.size());
    for (const Shape& s : shapes) ids.push_back(b.Variable(s, low, high));
    return ids;
  };
  const auto gradients = [shapes](CaseBuilder& b) {
    Outputs result;
    for (const Shape& s : shapes) result.push_back(b.Normal(s));
    return result;
  };
  const auto number = [](CaseBuilder& b, double value) {
    return b.graph().Scalar(value, graph::ScalarDType(b.floating()));
  };
  for (const bool nesterov : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      if (nesterov && momentum == 0.0) continue;
      cases.push_back(
          {fmt::format("SgdUpdate_{}{}", momentum, nesterov ? "_nesterov" : ""),
           [=](CaseBuilder& b) {
             const auto p = variables(b, -1, 1);
             const auto u = momentum == 0.0 ? std::vector<VariableId>{}
                                            : variables(b, -1, 1);
             return Outputs{graph::SgdUpdate(p, u, gradients(b), number(b, 0.1),
                                             number(b, 0.5),
                                             {.momentum = momentum,
                                              .nesterov = nesterov,
                                              .weight_decay = 0.01})};
           },
           4.0, false});
    }
  }
  cases.push_back({"AdamUpdate",
                   [=](CaseBuilder& b) {
                     const auto p = variables(b, -1, 1);
                     const auto m = variables(b, -1, 1);
                     const auto v = variables(b, 0.1, 1);
                     return Outputs{graph::AdamUpdate(
                         b.graph(), {p, m, v}, gradients(b), number(b, 0.1),
                         number(b, 0.5), b.Whole(DType::kI64, Shape({}), 3, 4),
                         {.weight_decay = 0.01})};
                   },
                   4.0, false});
  for (const double rate : {0.0, 0.01, 1.0}) {
    cases.push_back({fmt::format("MovingAverageUpdate_{}", rate),
                     [=](CaseBuilder& b) {
                       return Outputs{graph::MovingAverageUpdate(
                           variables(b, -1, 1), gradients(b), number(b, rate))};
                     },
                     4.0, false});
  }
  cases.push_back(
      {"GlobalNorm",
       [=](CaseBuilder& b) { return Outputs{graph::GlobalNorm(gradients(b))}; },
       256.0, false});
  cases.push_back({"Assign",
                   [](CaseBuilder& b) {
                     const VariableId v = b.Variable(Shape({70, 131}));
                     const Output doubled = graph::Mul(b.graph().Read(v), 2.0);
                     return Outputs{graph::Assign(b.graph(), v, doubled)};
                   },
                   1.0, false});
}

}  // namespace replicant::testing
