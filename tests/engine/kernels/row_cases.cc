#include <fmt/format.h>

#include <cmath>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/linalg.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "tests/engine/kernels/op_cases.h"

namespace replicant::testing {

using graph::Output;
using Outputs = std::vector<Output>;

namespace {

using Cases = std::vector<OpCase>;

void AddMatMul(Cases& cases) {
  struct Size {
    int64_t m, k, n;
  };
  for (const Size s : {Size{1, 1, 1}, Size{7, 13, 5}, Size{1, 200, 37},
                       Size{3, 51, 6}, Size{64, 129, 100}, Size{256, 24, 51},
                       // rows 2 KiB apart: RowSizeForProduct()
                       Size{512, 9, 512}, Size{512, 1, 512}}) {
    for (int i = 0; i < 4; ++i) {
      const bool ta = (i & 1) != 0;
      const bool tb = (i & 2) != 0;
      const Shape a = ta ? Shape({s.k, s.m}) : Shape({s.m, s.k});
      const Shape w = tb ? Shape({s.n, s.k}) : Shape({s.k, s.n});
      cases.push_back({fmt::format("MatMul_{}x{}x{}{}{}", s.m, s.k, s.n,
                                   ta ? "_ta" : "", tb ? "_tb" : ""),
                       [=](CaseBuilder& b) {
                         return Outputs{graph::MatMul(
                             b.Normal(a), b.Normal(w),
                             {.transpose_a = ta, .transpose_b = tb})};
                       },
                       static_cast<double>(std::max({s.m, s.k, s.n}))});
    }
  }
  using UnaryOp = std::function<Output(Output)>;
  const std::vector<std::pair<const char*, UnaryOp>> activations = {
      {"Relu", [](Output x) { return graph::Relu(x); }},
      {"Elu", [](Output x) { return graph::Elu(x); }},
      {"Tanh", [](Output x) { return graph::Tanh(x); }},
      {"Sigmoid", [](Output x) { return graph::Sigmoid(x); }},
      {"Softplus", [](Output x) { return graph::Softplus(x); }},
      // no value is near the bounds, where two roundings may fall on two sides
      {"Clip", [](Output x) { return graph::Clip(x, -7.16, 7.38); }},
      {"LeakyRelu", [](Output x) { return graph::LeakyRelu(x, 0.1); }},
  };
  for (const auto& [name, activation] : activations) {
    for (const int64_t m : {2, 33}) {
      cases.push_back(
          {fmt::format("MatMulBias{}_{}", name, m),
           [activation = activation, m](CaseBuilder& b) {
             const Output y = graph::MatMul(b.Normal(Shape({m, 20})),
                                            b.Normal(Shape({19, 20})),
                                            {.transpose_b = true});
             return Outputs{activation(graph::Add(y, b.Normal(Shape({19}))))};
           },
           64.0});
    }
  }
}

const std::vector<Shape>& RowShapes() {
  static const std::vector<Shape> shapes = {Shape({5, 1}), Shape({3, 7, 50}),
                                            Shape({300, 129})};
  return shapes;
}

void AddReductions(Cases& cases) {
  for (const Shape& shape : RowShapes()) {
    const std::string size = shape.ToString();
    const auto length = static_cast<double>(shape.num_elements());
    for (const auto& axes : std::vector<std::vector<int64_t>>{{}, {0}, {-1}}) {
      const graph::ReduceOptions options{.axes = axes};
      const std::string name =
          fmt::format("_{}_axes{}", size,
                      axes.empty() ? "all" : fmt::format("{}", axes[0]));
      using ReduceOp =
          Output (*)(Output, const graph::ReduceOptions&, graph::CallSite);
      for (const auto& [op_name, op] :
           std::vector<std::pair<const char*, ReduceOp>>{
               {"ReduceSum", &graph::ReduceSum},
               {"ReduceMean", &graph::ReduceMean},
               {"ReduceMax", &graph::ReduceMax},
               {"ReduceMin", &graph::ReduceMin}}) {
        cases.push_back({op_name + name,
                         [op = op, shape, options](CaseBuilder& b) {
                           return Outputs{op(b.Uniform(shape, 0.5, 1.5),
                                             options, graph::CallSite::Here())};
                         },
                         length});
      }
    }
    cases.push_back({"ArgMax_" + size,
                     [shape](CaseBuilder& b) {
                       return Outputs{graph::ArgMax(b.Normal(shape))};
                     },
                     1.0, false});
  }
  // more rows than one part of a tall reduction; axes that are not neighbours
  cases.push_back({"ReduceSum_tall",
                   [](CaseBuilder& b) {
                     return Outputs{graph::ReduceSum(
                         b.Uniform(Shape({9001, 3}), 0.5, 1.5), {.axes = {0}})};
                   },
                   9001.0});
  cases.push_back({"ReduceSum_outerAndInner",
                   [](CaseBuilder& b) {
                     return Outputs{graph::ReduceSum(b.Normal(Shape({5, 6, 7})),
                                                     {.axes = {0, 2}})};
                   },
                   35.0});
  cases.push_back(
      {"ReduceSum_i64",
       [](CaseBuilder& b) {
         return Outputs{graph::ReduceSum(
             b.Whole(DType::kI64, Shape({5, 6}), -9, 9), {.axes = {1}})};
       },
       1.0, false});
}

void AddNormsAndLosses(Cases& cases) {
  for (const Shape& shape : RowShapes()) {
    const std::string size = shape.ToString();
    const Shape c({shape[shape.rank() - 1]});
    const auto length = static_cast<double>(shape.num_elements());
    // one element has no spread to divide by
    if (c[0] > 1) {
      cases.push_back({"LayerNorm_" + size,
                       [shape, c](CaseBuilder& b) {
                         return Outputs{graph::LayerNorm(
                             b.Normal(shape), b.Normal(c), b.Normal(c))};
                       },
                       length});
      cases.push_back({"LayerNormTanh_" + size,
                       [shape, c](CaseBuilder& b) {
                         return Outputs{graph::Tanh(graph::LayerNorm(
                             b.Normal(shape), b.Normal(c), b.Normal(c)))};
                       },
                       length});
    }
    cases.push_back({"BatchNorm_" + size,
                     [shape, c](CaseBuilder& b) {
                       const auto norm = graph::BatchNorm(
                           b.Normal(shape), b.Normal(c), b.Normal(c));
                       return Outputs{norm.y, norm.mean, norm.variance};
                     },
                     length});
    cases.push_back({"BatchNormRelu_" + size,
                     [shape, c](CaseBuilder& b) {
                       const auto norm = graph::BatchNorm(
                           b.Normal(shape), b.Normal(c), b.Normal(c));
                       return Outputs{graph::Relu(norm.y)};
                     },
                     length});
    cases.push_back({"Softmax_" + size,
                     [shape](CaseBuilder& b) {
                       return Outputs{
                           graph::Softmax(b.Uniform(shape, -20, 20))};
                     },
                     129.0});
    cases.push_back({"LogSoftmax_" + size,
                     [shape](CaseBuilder& b) {
                       return Outputs{
                           graph::LogSoftmax(b.Uniform(shape, -20, 20))};
                     },
                     129.0});
  }
  cases.push_back(
      {"SoftmaxCrossEntropy",
       [](CaseBuilder& b) {
         return Outputs{graph::SoftmaxCrossEntropy(
             b.Uniform(Shape({257, 51}), -20, 20), b.Distribution(257, 51))};
       },
       51.0});
  cases.push_back({"SoftmaxCrossEntropyWithLabels",
                   [](CaseBuilder& b) {
                     return Outputs{graph::SoftmaxCrossEntropyWithLabels(
                         b.Normal(Shape({31, 10})),
                         b.Whole(DType::kI32, Shape({31}), 0, 10))};
                   },
                   10.0});
  cases.push_back({"CategoricalProjection",
                   [](CaseBuilder& b) {
                     return Outputs{graph::CategoricalProjection(
                         b.Distribution(257, 51),
                         b.Uniform(Shape({257}), -3, 12),
                         b.Uniform(Shape({257}), -0.2, 1), -2.0, 10.0)};
                   },
                   51.0, false});
}

void AddIndexing(Cases& cases) {
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    cases.push_back({fmt::format("Gather_{}", DTypeName(dtype)),
                     [dtype](CaseBuilder& b) {
                       return Outputs{
                           graph::Gather(b.Normal(Shape({7, 5})),
                                         b.Whole(dtype, Shape({4, 9}), -1, 8))};
                     },
                     36.0});
    cases.push_back({fmt::format("OneHot_{}", DTypeName(dtype)),
                     [dtype](CaseBuilder& b) {
                       return Outputs{
                           graph::OneHot(b.Whole(dtype, Shape({19}), -1, 8), 7,
                                         b.floating())};
                     },
                     1.0, false});
  }
  cases.push_back({"Transpose", [](CaseBuilder& b) {
                     return Outputs{graph::Transpose(
                         b.Normal(Shape({3, 4, 5, 6})), {2, 0, 3, 1})};
                   }});
  cases.push_back(
      {"Reshape", [](CaseBuilder& b) {
         return Outputs{graph::Reshape(b.Normal(Shape({3, 4, 5})), {6, -1})};
       }});
  for (const int64_t axis : {0, 1, 2}) {
    cases.push_back(
        {fmt::format("Concat_axis{}", axis), [axis](CaseBuilder& b) {
           const auto part = [&](int64_t n) {
             return b.Normal(Shape(
                 {axis == 0 ? n : 5, axis == 1 ? n : 6, axis == 2 ? n : 7}));
           };
           return Outputs{graph::Concat({part(3), part(1), part(8)}, axis)};
         }});
  }
  cases.push_back({"Slice", [](CaseBuilder& b) {
                     return Outputs{graph::Slice(b.Normal(Shape({5, 6, 7})),
                                                 {1, 0, 2}, {3, 6, 4})};
                   }});
  cases.push_back({"Pad", [](CaseBuilder& b) {
                     return Outputs{graph::Pad(b.Normal(Shape({5, 6, 7})),
                                               {1, 0, 2}, {3, 0, 1}, -2.5)};
                   }});
  cases.push_back({"Random",
                   [](CaseBuilder& b) {
                     const Output step = b.Whole(DType::kI64, Shape({}), 3, 4);
                     return Outputs{
                         graph::RandomNormal({.name = "normal", .step = step},
                                             b.floating(), Shape({9, 7})),
                         graph::RandomInt({.name = "whole", .step = step},
                                          Shape({9, 7}), -4, 5)};
                   },
                   1.0, false});
}

// Symmetric parts that are positive definite: random, with a large diagonal.
Output PositiveDefinite(CaseBuilder& b, const Shape& shape) {
  const int64_t n = shape[shape.rank() - 1];
  const HostTensor diagonal = [&] {
    HostTensor values(DType::kF32, Shape({n, n}));
    for (int64_t i = 0; i < n; ++i) {
      values.MutableSpan<float>()[static_cast<size_t>(i * (n + 1))] =
          static_cast<float>(3.0 + 2.0 * std::sqrt(static_cast<double>(n)));
    }
    return values;
  }();
  return graph::Add(
      b.Normal(shape),
      graph::Cast(b.graph().Constant(diagonal.view()), b.floating()));
}

void AddLinalg(Cases& cases) {
  struct Size {
    int64_t batch, m, k, n;
  };
  for (const Size s : {Size{1, 1, 1, 1}, Size{3, 7, 13, 5},
                       Size{5, 130, 40, 33}, Size{64, 9, 20, 17}}) {
    for (int i = 0; i < 4; ++i) {
      const bool ta = (i & 1) != 0;
      const bool tb = (i & 2) != 0;
      const Shape a =
          ta ? Shape({s.batch, s.k, s.m}) : Shape({s.batch, s.m, s.k});
      const Shape w =
          tb ? Shape({s.batch, s.n, s.k}) : Shape({s.batch, s.k, s.n});
      cases.push_back({fmt::format("BatchMatMul_{}x{}x{}x{}{}{}", s.batch, s.m,
                                   s.k, s.n, ta ? "_ta" : "", tb ? "_tb" : ""),
                       [=](CaseBuilder& b) {
                         return Outputs{graph::BatchMatMul(
                             b.Normal(a), b.Normal(w),
                             {.transpose_a = ta, .transpose_b = tb})};
                       },
                       static_cast<double>(std::max({s.m, s.k, s.n}))});
    }
  }
  for (const int64_t n : {1, 4, 37, 90}) {
    for (const int64_t m : {1, 6}) {
      for (const int64_t batch : {0, 3}) {
        const Shape a = batch == 0 ? Shape({n, n}) : Shape({batch, n, n});
        const Shape right = batch == 0 ? Shape({n, m}) : Shape({batch, n, m});
        cases.push_back({fmt::format("CholeskySolve_{}x{}x{}", batch, n, m),
                         [=](CaseBuilder& b) {
                           const Output s = PositiveDefinite(b, a);
                           return Outputs{
                               graph::CholeskySolve(s, b.Normal(right))};
                         },
                         static_cast<double>(2 * n)});
      }
    }
  }
}

}  // namespace

void AddRowCases(std::vector<OpCase>& cases) {
  AddMatMul(cases);
  AddLinalg(cases);
  AddReductions(cases);
  AddNormsAndLosses(cases);
  AddIndexing(cases);
}

}  // namespace replicant::testing
