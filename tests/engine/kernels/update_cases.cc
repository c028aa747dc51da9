#include <fmt/format.h>

#include <utility>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/state.h"
#include "tests/engine/kernels/op_cases.h"

namespace replicant::testing {

using graph::Output;
using graph::VariableId;
using Outputs = std::vector<Output>;

namespace {

// Repeats an update as nodes that make one part of it each.
Output RepeatInParts(Output update, int64_t num_parts) {
  const graph::Node whole = update.producer();
  for (int64_t part = 0; part < num_parts; ++part) {
    graph::Graph::NodeSpec spec{.op = whole.op,
                                .attributes = whole.attributes,
                                .updates = whole.updates};
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      spec.inputs.push_back(i < whole.updates.size()
                                ? update.graph->Read(whole.updates[i])
                                : update.graph->output(whole.inputs[i]));
    }
    graph::SetUpdatePart({.index = part, .count = num_parts}, &spec.attributes);
    update = update.graph->Add(std::move(spec));
  }
  return update;
}

// More variables than one launch of a device takes, of several sizes.
void AddUpdatesOfManyVariables(std::vector<OpCase>& cases) {
  constexpr int64_t kCount = 300;
  const auto shape = [](int64_t i) { return Shape({20 + i % 7}); };
  const auto variables = [shape](CaseBuilder& b) {
    std::vector<VariableId> ids;
    for (int64_t i = 0; i < kCount; ++i) ids.push_back(b.Variable(shape(i)));
    return ids;
  };
  const auto gradients = [shape](CaseBuilder& b) {
    Outputs result;
    for (int64_t i = 0; i < kCount; ++i) result.push_back(b.Normal(shape(i)));
    return result;
  };
  cases.push_back(
      {"SgdUpdate_ManyVariables",
       [=](CaseBuilder& b) {
         const DType scalar = graph::ScalarDType(b.floating());
         return Outputs{RepeatInParts(
             graph::SgdUpdate(variables(b), variables(b), gradients(b),
                              b.graph().Scalar(0.1, scalar),
                              b.graph().Scalar(0.5, scalar), {.momentum = 0.9}),
             /*num_parts=*/3)};
       },
       4.0, false,
       // a replica's share of an update has no form there
       /*has_module=*/false});
  cases.push_back(
      {"GlobalNorm_ManyTensors",
       [=](CaseBuilder& b) { return Outputs{graph::GlobalNorm(gradients(b))}; },
       256.0, false});
}

}  // namespace

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
  AddUpdatesOfManyVariables(cases);
  cases.push_back({"Assign",
                   [](CaseBuilder& b) {
                     const VariableId v = b.Variable(Shape({70, 131}));
                     const Output doubled = graph::Mul(b.graph().Read(v), 2.0);
                     return Outputs{graph::Assign(b.graph(), v, doubled)};
                   },
                   1.0, false});
}

}  // namespace replicant::testing
