// Odd sizes catch wrong tails of vectors and tiles; the larger ones catch wrong
// parts of threads.
#include "tests/core/kernels/op_cases.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

#include "core/graph/ops/conv.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/image.h"
#include "core/graph/ops/indexing.h"
#include "core/graph/ops/losses.h"
#include "core/graph/ops/matmul.h"
#include "core/graph/ops/norm.h"
#include "core/graph/ops/optimizer.h"
#include "core/graph/ops/pool.h"
#include "core/graph/ops/random.h"
#include "core/graph/ops/reduce.h"
#include "core/graph/ops/shape_ops.h"
#include "core/graph/ops/state.h"
#include "tests/support/tensor_values.h"

namespace replicant::testing {

using graph::Output;
using graph::VariableId;
using Outputs = std::vector<Output>;

Output CaseBuilder::Input(HostTensor value) {
  const std::string name = fmt::format("x{}", values_.size());
  const bool is_floating = value.dtype() == DType::kF32;
  const DType dtype = is_floating ? stored_ : value.dtype();
  const Output input = graph_.Input(name, dtype, value.shape());
  values_.emplace_back(name,
                       Values(dtype, value.shape(), ToDoubles(value.view())));
  return is_floating ? graph::Cast(input, floating_) : input;
}

Output CaseBuilder::Normal(const Shape& shape) {
  const Output x = Input(RandomNormal(DType::kF32, shape, values_.size()));
  differentiable_.push_back(x);
  return x;
}

Output CaseBuilder::Uniform(const Shape& shape, double low, double high) {
  const Output x =
      Input(RandomUniform(DType::kF32, shape, low, high, values_.size()));
  differentiable_.push_back(x);
  return x;
}

Output CaseBuilder::Distribution(int64_t rows, int64_t columns) {
  return Input(RandomDistribution(DType::kF32, rows, columns, values_.size()));
}

Output CaseBuilder::Whole(DType dtype, const Shape& shape, int64_t low,
                          int64_t high) {
  const HostTensor draws =
      RandomUniform(DType::kF64, shape, static_cast<double>(low),
                    static_cast<double>(high), values_.size());
  std::vector<double> values = ToDoubles(draws.view());
  for (double& v : values) v = std::floor(v);
  return Input(Values(dtype, shape, values));
}

VariableId CaseBuilder::Variable(const Shape& shape, double low, double high) {
  const std::string name = fmt::format("v{}", graph_.variables().size());
  return graph_.AddVariable(
      {.name = name,
       .dtype = floating_,
       .shape = shape,
       .initializer = [shape, low, high](RandomStream&,
                                         MutableTensorView view) {
         // the same in both dtypes
         const HostTensor values =
             RandomUniform(DType::kF32, shape, low, high, /*seed=*/17);
         const HostTensor cast =
             Values(view.dtype(), shape, ToDoubles(values.view()));
         std::copy(cast.bytes().begin(), cast.bytes().end(), view.data());
       }});
}

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
      {Shape({7, 5}), Shape({7, 5})},      {Shape({301, 51}), Shape({51})},
      {Shape({301, 1}), Shape({301, 51})}, {Shape({}), Shape({4, 3})},
      {Shape({3, 1, 5}), Shape({4, 1})},
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
  cases.push_back({"Where",
                   [](CaseBuilder& b) {
                     return Outputs{graph::Where(
                         b.Whole(DType::kBool, Shape({40, 3}), 0, 2),
                         b.Normal(Shape({40, 3})), b.Normal(Shape({3})))};
                   },
                   40.0});
  for (const DType to : {DType::kU8, DType::kI32, DType::kI64, DType::kBool}) {
    cases.push_back({fmt::format("Cast_{}", DTypeName(to)),
                     [to](CaseBuilder& b) {
                       // 0.5 away from whole numbers, some out of range
                       const Output x = graph::Affine(
                           b.Whole(DType::kF32, Shape({97}), -40, 300), 1.0,
                           0.5);
                       return Outputs{graph::Cast(x, to)};
                     },
                     1.0, false});
  }
  cases.push_back({"IntegerArithmetic",
                   [](CaseBuilder& b) {
                     const Output x = b.Whole(DType::kI64, Shape({9}), 0, 1000);
                     const Output y = b.Whole(DType::kI64, Shape({9}), 1, 9);
                     return Outputs{graph::Add(x, y), graph::Modulo(x, y),
                                    graph::Div(x, y), graph::Mul(x, y)};
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

void AddMatMul(Cases& cases) {
  struct Size {
    int64_t m, k, n;
  };
  for (const Size s : {Size{1, 1, 1}, Size{7, 13, 5}, Size{1, 200, 37},
                       Size{3, 51, 6}, Size{64, 129, 100}, Size{256, 24, 51}}) {
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
      {"Clip", [](Output x) { return graph::Clip(x, -1, 1); }},
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

struct Conv {
  std::string ToString() const {
    return fmt::format("{}x{}x{}x{}_o{}k{}s{}p{}", x[0], x[1], x[2], x[3], o, k,
                       stride, padding);
  }
  // How many products the longest sum has, that of a weight's gradient, with
  // those of a result.
  double sum_length() const {
    const int64_t num_pixels = x.num_elements() / x[3];
    return static_cast<double>(num_pixels + k * k * x[3]);
  }
  Output Of(CaseBuilder& b, Output image) const {
    return graph::Conv2d(image, b.Normal(Shape({o, x[3], k, k})),
                         {.stride = stride, .padding = padding});
  }

  Shape x;
  int64_t o, k, stride, padding;
  bool is_shifted = false;  // of pixels
};

void AddImages(Cases& cases) {
  const std::vector<Conv> convs = {{Shape({1, 1, 1, 1}), 1, 1, 1, 0},
                                   {Shape({2, 9, 11, 3}), 5, 3, 2, 1},
                                   {Shape({3, 13, 12, 9}), 32, 3, 2, 0},
                                   {Shape({2, 16, 16, 9}), 32, 8, 4, 0},
                                   {Shape({2, 8, 8, 16}), 16, 3, 1, 1},
                                   {Shape({2, 7, 7, 33}), 18, 4, 2, 0},
                                   {Shape({1, 12, 10, 32}), 32, 3, 1, 0},
                                   {Shape({5, 6, 6, 4}), 7, 1, 1, 0},
                                   // more than is converted at a time
                                   {Shape({4, 64, 64, 72}), 2, 1, 1, 0},
                                   // enough for Winograd's way: one block of
                                   // tiles, several, and each padding
                                   {Shape({2, 24, 23, 32}), 48, 3, 1, 1},
                                   {Shape({5, 31, 34, 48}), 32, 3, 1, 0},
                                   {Shape({1, 31, 33, 32}), 32, 3, 1, 2}};
  for (const Conv& c : convs) {
    cases.push_back(
        {"Conv2d_" + c.ToString(),
         [c](CaseBuilder& b) { return Outputs{c.Of(b, b.Normal(c.x))}; },
         c.sum_length()});
    cases.push_back({"Conv2dBiasRelu_" + c.ToString(),
                     [c](CaseBuilder& b) {
                       const Output y = c.Of(b, b.Normal(c.x));
                       return Outputs{
                           graph::Relu(graph::Add(y, b.Normal(Shape({c.o}))))};
                     },
                     c.sum_length()});
  }
  struct Pool {
    int64_t window, stride, padding;
  };
  for (const Pool p : {Pool{2, 2, 0}, Pool{3, 2, 1}, Pool{3, 1, 2}}) {
    const auto options = graph::PoolOptions{
        .window = p.window, .stride = p.stride, .padding = p.padding};
    const std::string size =
        fmt::format("w{}s{}p{}", p.window, p.stride, p.padding);
    cases.push_back({"MaxPool2d_" + size,
                     [options](CaseBuilder& b) {
                       return Outputs{graph::MaxPool2d(
                           b.Normal(Shape({3, 9, 8, 19})), options)};
                     },
                     9.0});
    cases.push_back({"AveragePool2d_" + size,
                     [options](CaseBuilder& b) {
                       return Outputs{graph::AveragePool2d(
                           b.Normal(Shape({3, 9, 8, 19})), options)};
                     },
                     9.0});
  }
  cases.push_back({"GlobalAveragePool",
                   [](CaseBuilder& b) {
                     return Outputs{graph::GlobalAveragePool(
                         b.Normal(Shape({3, 9, 8, 19})))};
                   },
                   72.0});
  cases.push_back({"UpsampleNearest2d",
                   [](CaseBuilder& b) {
                     return Outputs{graph::UpsampleNearest2d(
                         b.Normal(Shape({3, 4, 5, 7})), 3)};
                   },
                   9.0});
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    cases.push_back({fmt::format("RandomShift_{}", DTypeName(dtype)),
                     [dtype](CaseBuilder& b) {
                       // some shifts are wider than the image
                       return Outputs{graph::RandomShift(
                           b.Whole(dtype, Shape({40, 6, 5, 9}), 0, 256),
                           b.Whole(DType::kI32, Shape({40, 2}), -8, 9))};
                     },
                     1.0, false});
  }
}

// A first layer: what backends may read as pixels (the pass fuse_pixels).
void AddPixelConvs(Cases& cases) {
  const std::vector<Conv> convs = {
      {Shape({3, 64, 64, 9}), 16, 8, 4, 0, true},
      {Shape({2, 16, 16, 9}), 32, 8, 4, 0, false},
      {Shape({3, 13, 12, 9}), 5, 3, 2, 1, true},
      // three vectors of channels, the last partly filled
      {Shape({2, 9, 11, 3}), 41, 3, 3, 0, true},
      // windows that leave pixels out between them, and see padding alone
      {Shape({2, 11, 14, 9}), 20, 2, 3, 2, true},
      // more windows in a row than there are registers
      {Shape({1, 5, 71, 16}), 33, 3, 1, 1, false},
      // more images than parts of a batch; one window each
      {Shape({37, 8, 8, 8}), 1, 8, 1, 0, true},
      // too few channels: floats are made first
      {Shape({2, 9, 8, 1}), 4, 3, 1, 1, true}};
  for (const Conv& c : convs) {
    const auto conv = [c](CaseBuilder& b) {
      Output pixels = b.Whole(DType::kU8, c.x, 0, 256);
      if (c.is_shifted) {
        // some shifts are wider than the image
        pixels = graph::RandomShift(
            pixels, b.Whole(DType::kI32, Shape({c.x[0], 2}), -15, 16));
      }
      return c.Of(b, graph::NormalizePixels(pixels, b.floating()));
    };
    cases.push_back({"PixelConv2d_" + c.ToString(),
                     [conv](CaseBuilder& b) { return Outputs{conv(b)}; },
                     c.sum_length()});
    cases.push_back({"PixelConv2dBiasElu_" + c.ToString(),
                     [conv, c](CaseBuilder& b) {
                       const Output y = conv(b);
                       return Outputs{
                           graph::Elu(graph::Add(y, b.Normal(Shape({c.o}))))};
                     },
                     c.sum_length()});
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

// What may follow a batch norm, and what gamma and beta are.
struct BatchNormForm {
  const char* name;
  bool is_conditional, has_relu, has_residual;
};

// What BatchNorm and BatchNormApply take.
struct BatchNormInputs {
  BatchNormInputs(CaseBuilder& b, const Shape& shape, const BatchNormForm& form)
      : x(b.Normal(shape)),
        gamma(b.Normal(Channels(shape, form))),
        beta(b.Normal(Channels(shape, form))) {
    options.has_relu = form.has_relu;
    if (form.has_residual) options.residual = b.Normal(shape);
  }
  static Shape Channels(const Shape& shape, const BatchNormForm& form) {
    return form.is_conditional ? Shape({shape[0], shape[3]})
                               : Shape({shape[3]});
  }

  Output x, gamma, beta;
  graph::BatchNormOptions options;
};

// Blocks of rows that are cut by examples and by threads.
void AddBatchNorms(Cases& cases) {
  for (const Shape& x : {Shape({3, 5, 7, 19}), Shape({5, 40, 40, 16})}) {
    const auto length = static_cast<double>(x[0] * x[1] * x[2]);
    for (const BatchNormForm& form :
         {BatchNormForm{"Relu", false, true, false},
          BatchNormForm{"Residual", false, false, true},
          BatchNormForm{"ReluResidual", false, true, true},
          BatchNormForm{"Conditional", true, false, false},
          BatchNormForm{"ConditionalRelu", true, true, false},
          BatchNormForm{"ConditionalReluResidual", true, true, true}}) {
      cases.push_back({fmt::format("BatchNorm{}_{}", form.name, x.ToString()),
                       [x, form](CaseBuilder& b) {
                         const BatchNormInputs in(b, x, form);
                         const auto norm = graph::BatchNorm(
                             in.x, in.gamma, in.beta, in.options);
                         return Outputs{norm.y, norm.mean, norm.variance};
                       },
                       length});
      cases.push_back(
          {fmt::format("BatchNormApply{}_{}", form.name, x.ToString()),
           [x, form](CaseBuilder& b) {
             const BatchNormInputs in(b, x, form);
             const Output parts = graph::Concat(
                 {graph::Reshape(graph::BatchMoments(in.x), {1, 2, x[3]}),
                  b.Uniform(Shape({2, 2, x[3]}), 0.5, 2)},
                 0);
             const Output moments = graph::CombineMoments(parts);
             return Outputs{graph::BatchNormApply(in.x, in.gamma, in.beta,
                                                  moments, in.options),
                            moments};
           },
           length});
    }
  }
  cases.push_back({"SpectralNorm",
                   [](CaseBuilder& b) {
                     const Output w = b.Normal(Shape({19, 7, 3, 3}));
                     const Output u =
                         graph::Reshape(b.Distribution(1, 19), {19});
                     const auto norm = graph::SpectralNorm(w, u);
                     return Outputs{norm.y, norm.u, norm.v};
                   },
                   1197.0});
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
                         b.Whole(DType::kI32, Shape({31}), -1, 11))};
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

void AddUpdates(Cases& cases) {
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
    return b.graph().Scalar(value, DType::kF32);
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

}  // namespace

std::vector<OpCase> AllOpCases() {
  Cases cases;
  AddElementwise(cases);
  AddLogic(cases);
  AddMatMul(cases);
  AddImages(cases);
  AddPixelConvs(cases);
  AddReductions(cases);
  AddBatchNorms(cases);
  AddNormsAndLosses(cases);
  AddIndexing(cases);
  AddUpdates(cases);
  // names of tests have letters, digits and underscores
  for (OpCase& c : cases) {
    for (char& letter : c.name) {
      if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    }
  }
  return cases;
}

}  // namespace replicant::testing
