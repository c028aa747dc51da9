#include <fmt/format.h>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "tests/engine/kernels/op_cases.h"

namespace replicant::testing {

using graph::Output;
using Outputs = std::vector<Output>;

namespace {

using Cases = std::vector<OpCase>;

void AddElementwise(Cases& cases) {
  struct Unary {
    const char* name;
    std::function<Output(Output)> op;
    double low, high;
  };
  const std::vector<Unary> unary = {
      {"Neg", [](Output x) { return graph::Neg(x); }, -3, 3},
      {"Abs", [](Output x) { return graph::Abs(x); }, -3, 3},
      {"Exp", [](Output x) { return graph::Exp(x); }, -9, 3},
      {"Log", [](Output x) { return graph::Log(x); }, 0.01, 9},
      {"Sqrt", [](Output x) { return graph::Sqrt(x); }, 0.01, 9},
      {"Square", [](Output x) { return graph::Square(x); }, -3, 3},
      {"Sin", [](Output x) { return graph::Sin(x); }, -9, 9},
      {"Cos", [](Output x) { return graph::Cos(x); }, -9, 9},
      {"Tanh", [](Output x) { return graph::Tanh(x); }, -9, 9},
      {"Sigmoid", [](Output x) { return graph::Sigmoid(x); }, -30, 30},
      {"Softplus", [](Output x) { return graph::Softplus(x); }, -30, 30},
      {"Relu", [](Output x) { return graph::Relu(x); }, -3, 3},
      {"LeakyRelu", [](Output x) { return graph::LeakyRelu(x, 0.2); }, -3, 3},
      {"Elu", [](Output x) { return graph::Elu(x, 1.5); }, -9, 3},
      {"Clip", [](Output x) { return graph::Clip(x, -1, 0.5); }, -3, 3},
      {"Affine", [](Output x) { return graph::Affine(x, -2.5, 0.75); }, -3, 3},
  };
  for (const Unary& u : unary) {
    // 3 x 2051 elements are more than one tile, and a tail
    cases.push_back(
        {u.name, [u](CaseBuilder& b) {
           return Outputs{u.op(b.Uniform(Shape({3, 2051}), u.low, u.high))};
         }});
  }
  cases.push_back({"Sign",
                   [](CaseBuilder& b) {
                     return Outputs{graph::Sign(b.Normal(Shape({131})))};
                   },
                   1.0, false});

  using BinaryOp = Output (*)(Output, Output, graph::CallSite);
  const std::vector<std::pair<const char*, BinaryOp>> binary = {
      {"Add", &graph::Add},         {"Sub", &graph::Sub},
      {"Mul", &graph::Mul},         {"Div", &graph::Div},
      {"Minimum", &graph::Minimum}, {"Maximum", &graph::Maximum},
  };
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {Shape({7, 5}), Shape({7, 5})},
      {Shape({301, 51}), Shape({51})},
      {Shape({301, 1}), Shape({301, 51})},
      {Shape({}), Shape({4, 3})},
      {Shape({3, 1, 5}), Shape({4, 1})},
      // last axes of whole packs of elements
      {Shape({64}), Shape({64})},
      {Shape({5, 6, 32}), Shape({6, 32})},
      {Shape({5, 1, 32}), Shape({5, 6, 1})},
  };
  for (const auto& [name, op] : binary) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto [a, b] = shapes[i];
      cases.push_back({fmt::format("{}_broadcast{}", name, i),
                       [op = op, a = a, b = b](CaseBuilder& builder) {
                         return Outputs{op(builder.Uniform(a, 0.5, 2),
                                           builder.Uniform(b, 0.5, 2),
                                           graph::CallSite::Here())};
                       },
                       301.0});
    }
  }
  // no gradient; quotients stay clear of whole numbers
  cases.push_back({"Modulo",
                   [](CaseBuilder& b) {
                     return Outputs{
                         graph::Modulo(b.Uniform(Shape({97}), 3.1, 3.9),
                                       b.Uniform(Shape({97}), 1.2, 1.5))};
                   },
                   1.0, false});
}

void AddLogic(Cases& cases) {
  using BinaryOp = Output (*)(Output, Output, graph::CallSite);
  const std::vector<std::pair<const char*, BinaryOp>> comparisons = {
      {"Less", &graph::Less},       {"LessEqual", &graph::LessEqual},
      {"Greater", &graph::Greater}, {"GreaterEqual", &graph::GreaterEqual},
      {"Equal", &graph::Equal},     {"NotEqual", &graph::NotEqual},
  };
  for (const auto& [name, op] : comparisons) {
    for (const DType dtype : {DType::kF32, DType::kI64, DType::kU8}) {
      cases.push_back({fmt::format("{}_{}", name, DTypeName(dtype)),
                       [op = op, dtype](CaseBuilder& b) {
                         // few different values, so that some are equal
                         return Outputs{op(b.Whole(dtype, Shape({97}), 0, 4),
                                           b.Whole(dtype, Shape({97}), 0, 4),
                                           graph::CallSite::Here())};
                       },
                       1.0, false});
    }
  }
  cases.push_back(
      {"AndOrNot",
       [](CaseBuilder& b) {
         const Output p = b.Whole(DType::kBool, Shape({97}), 0, 2);
         const Output q = b.Whole(DType::kBool, Shape({97}), 0, 2);
         return Outputs{graph::And(p, q), graph::Or(p, q), graph::Not(p)};
       },
       1.0, false});
  for (const int64_t n : {3, 16}) {
    cases.push_back({fmt::format("Where_{}", n),
                     [n](CaseBuilder& b) {
                       return Outputs{graph::Where(
                           b.Whole(DType::kBool, Shape({40, n}), 0, 2),
                           b.Normal(Shape({40, n})), b.Normal(Shape({n})))};
                     },
                     40.0});
  }
  for (const DType to : {DType::kU8, DType::kI32, DType::kI64, DType::kBool}) {
    for (const int64_t n : {96, 97}) {
      cases.push_back({fmt::format("Cast_{}_{}", DTypeName(to), n),
                       [to, n](CaseBuilder& b) {
                         // 0.5 away from whole numbers, some out of range
                         const Output x = graph::Affine(
                             b.Whole(DType::kF32, Shape({n}), -40, 300), 1.0,
                             0.5);
                         return Outputs{graph::Cast(x, to)};
                       },
                       1.0, false});
    }
  }
  cases.push_back({"IntegerArithmetic",
                   [](CaseBuilder& b) {
                     const Output x = b.Whole(DType::kI64, Shape({9}), 0, 1000);
                     const Output y = b.Whole(DType::kI64, Shape({9}), 1, 9);
                     return Outputs{graph::Add(x, y), graph::Modulo(x, y),
                                    graph::Div(x, y), graph::Mul(x, y)};
                   },
                   1.0, false});
  // a chain from whole numbers, not all of which floats hold, to floats
  cases.push_back(
      {"FusedChainOfIntegers",
       [](CaseBuilder& b) {
         const Output x = b.Whole(DType::kI32, Shape({129, 17}), -20, 20);
         const Output same = graph::Add(graph::Add(x, 0x1p24), -0x1p24);
         const Output z = graph::Mul(graph::Tanh(graph::Cast(x, b.floating())),
                                     b.Normal(Shape({17})));
         return Outputs{
             graph::Where(graph::Greater(x, b.graph().Scalar(3.0, x.dtype())),
                          graph::Cast(same, b.floating()), graph::Exp(z))};
       },
       1.0, false});
  cases.push_back(
      {"NormalizePixels",
       [](CaseBuilder& b) {
         return Outputs{graph::NormalizePixels(
             b.Whole(DType::kU8, Shape({2, 31, 33, 9}), 0, 256), b.floating())};
       },
       1.0, false});
  // a chain that fusion joins: the whole of a Gaussian's log-density
  cases.push_back(
      {"FusedChain",
       [](CaseBuilder& b) {
         const Output x = b.Normal(Shape({129, 17}));
         const Output mean = b.Normal(Shape({17}));
         const Output deviation = graph::Softplus(b.Normal(Shape({129, 1})));
         const Output z = graph::Div(graph::Sub(x, mean), deviation);
         return Outputs{
             graph::Affine(graph::Add(graph::Square(z),
                                      graph::Mul(graph::Log(deviation), 2.0)),
                           -0.5, -0.9189385)};
       },
       2048.0});
}

}  // namespace

void AddElementwiseCases(std::vector<OpCase>& cases) {
  AddElementwise(cases);
  AddLogic(cases);
}

}  // namespace replicant::testing
