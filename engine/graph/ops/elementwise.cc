#include "engine/graph/ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/ops/elementwise_gradient.h"

namespace replicant::graph {
namespace {

enum class Operands { kFloating, kNumeric, kAny, kBool };

Operands OperandsOf(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp:
    case ScalarOp::kLog:
    case ScalarOp::kSqrt:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
    case ScalarOp::kTanh:
    case ScalarOp::kSigmoid:
    case ScalarOp::kSoftplus:
    case ScalarOp::kLeakyRelu:
    case ScalarOp::kElu:
      return Operands::kFloating;
    case ScalarOp::kCopy:
    case ScalarOp::kEqual:
    case ScalarOp::kNotEqual:
    case ScalarOp::kSelect:
      return Operands::kAny;
    case ScalarOp::kNot:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
      return Operands::kBool;
    default:
      return Operands::kNumeric;
  }
}

bool Accepts(Operands operands, DType dtype) {
  switch (operands) {
    case Operands::kFloating:
      return IsFloating(dtype);
    case Operands::kNumeric:
      return dtype != DType::kBool;
    case Operands::kBool:
      return dtype == DType::kBool;
    case Operands::kAny:
      return true;
  }
  return false;
}

std::string_view NameOf(Operands operands) {
  switch (operands) {
    case Operands::kFloating:
      return "a floating dtype (f32, f64, bf16)";
    case Operands::kNumeric:
      return "a numeric dtype (any but bool)";
    case Operands::kBool:
      return "bool";
    case Operands::kAny:
      return "any dtype";
  }
  return "";
}

bool IsComparison(ScalarOp op) {
  return op >= ScalarOp::kLess && op <= ScalarOp::kNotEqual;
}

std::string List(std::span<const TensorType> types) {
  std::string text;
  for (const TensorType& type : types) {
    text += (text.empty() ? "" : ", ") + type.ToString();
  }
  return text;
}

void CheckOperands(const InferContext& context, ScalarOp op) {
  // Where has a bool condition and two branches of one dtype
  const size_t first = op == ScalarOp::kSelect ? 1 : 0;
  if (first == 1 && context.dtype(0) != DType::kBool) {
    context.Fail(fmt::format("want a bool condition, got {}",
                             context.inputs[0].ToString()));
  }
  const Operands operands = OperandsOf(op);
  for (size_t i = first; i < context.inputs.size(); ++i) {
    if (!Accepts(operands, context.inputs[i].dtype)) {
      context.Fail(fmt::format("want {}, got {}", NameOf(operands),
                               List(context.inputs)));
    }
    if (context.inputs[i].dtype != context.inputs[first].dtype) {
      context.Fail(fmt::format(
          "want inputs of one dtype, got {}; hint: Cast one of them",
          List(context.inputs)));
    }
  }
}

std::vector<TensorType> InferElementwise(const InferContext& context) {
  const ScalarProgram& program = context.attributes.Program("program");
  REPLICANT_CHECK(program.num_inputs == context.num_inputs() &&
                      !program.instructions.empty(),
                  "program of {} inputs on {}", program.num_inputs,
                  context.num_inputs());
  // each op of a fused program was checked before the fusion
  if (context.op != FusedElementwiseOp().name) {
    CheckOperands(context, program.instructions[0].op);
  }

  Shape shape = context.shape(0);
  for (const TensorType& input : context.inputs) {
    const auto broadcast = BroadcastShapes(shape, input.shape);
    if (!broadcast) {
      context.Fail(fmt::format(
          "shapes do not broadcast: {}; counted from the last, dimensions must "
          "be equal or one of them 1",
          List(context.inputs)));
    }
    shape = *broadcast;
  }
  if (context.attributes.Has("shape")) {
    const Shape wanted{std::span(context.attributes.Ints("shape"))};
    if (BroadcastShapes(shape, wanted) != wanted) {
      context.Fail(fmt::format("{} does not broadcast to {}",
                               List(context.inputs), wanted.ToString()));
    }
    shape = wanted;
  }
  return {{program.instructions.back().dtype, shape}};
}

std::string_view WhyNoGradient(ScalarOp op) {
  if (IsComparison(op)) return "a comparison is a step";
  switch (op) {
    case ScalarOp::kSign:
      return "it is zero wherever it exists";
    case ScalarOp::kModulo:
      return "it is meant for counters";
    case ScalarOp::kNot:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
      return "it is an op on bool";
    default:
      return {};
  }
}

const OpDef& OpDefOf(ScalarOp op) {
  static const std::array<OpDef, kNumScalarOps> ops = [] {
    std::array<OpDef, kNumScalarOps> table;
    for (int i = 0; i < kNumScalarOps; ++i) {
      const auto scalar_op = static_cast<ScalarOp>(i);
      const std::string_view reason = WhyNoGradient(scalar_op);
      table[static_cast<size_t>(i)] = {
          .name = ScalarOpName(scalar_op),
          .infer = &InferElementwise,
          .gradient = reason.empty() ? &ElementwiseGradient : nullptr,
          .no_gradient_reason = reason,
          .is_elementwise = true};
    }
    return table;
  }();
  return ops[static_cast<size_t>(op)];
}

Output AddCopy(const Output& x, DType dtype, const Shape* shape,
               CallSite site) {
  Attributes attributes;
  attributes.Set("program",
                 ScalarProgram{1, {{.op = ScalarOp::kCopy, .dtype = dtype}}});
  if (shape != nullptr) {
    attributes.Set("shape", std::vector<int64_t>(shape->dims().begin(),
                                                 shape->dims().end()));
  }
  return x.graph->Add({.op = &OpDefOf(ScalarOp::kCopy),
                       .inputs = {x},
                       .attributes = std::move(attributes),
                       .name = shape != nullptr ? "BroadcastTo" : "Cast"},
                      site);
}

void CheckParameter(const Graph& graph, bool is_good, std::string_view what) {
  if (is_good) return;
  throw InvalidArgument(fmt::format("{}: {}", graph.site().ToString(), what));
}

}  // namespace

std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, Shape::kMaxRank> dims{};
  for (int i = 0; i < rank; ++i) {
    // missing leading dimensions count as 1
    const int axis_a = i - (rank - a.rank());
    const int axis_b = i - (rank - b.rank());
    const int64_t dim_a = axis_a < 0 ? 1 : a[axis_a];
    const int64_t dim_b = axis_b < 0 ? 1 : b[axis_b];
    if (dim_a != dim_b && dim_a != 1 && dim_b != 1) return std::nullopt;
    dims[static_cast<size_t>(i)] = dim_a == 1 ? dim_b : dim_a;
  }
  return Shape(std::span<const int64_t>(dims).first(static_cast<size_t>(rank)));
}

const OpDef& FusedElementwiseOp() {
  static const OpDef op{
      .name = "FusedElementwise",
      .infer = &InferElementwise,
      .no_gradient_reason = "only a pass adds it, after Gradients()",
      .is_elementwise = true};
  return op;
}

Output AddScalarOp(ScalarOp op, const std::vector<Output>& inputs,
                   CallSite site, double p, double q) {
  REPLICANT_CHECK(static_cast<int>(inputs.size()) == ScalarOpArity(op),
                  "{} of {} inputs", ScalarOpName(op), inputs.size());
  DType dtype = inputs.back().dtype();
  if (IsComparison(op)) dtype = DType::kBool;
  ScalarProgram program{
      static_cast<int>(inputs.size()),
      {{.op = op, .dtype = dtype, .operands = {0, 1, 2}, .p = p, .q = q}}};
  Attributes attributes;
  attributes.Set("program", std::move(program));
  return inputs[0].graph->Add({.op = &OpDefOf(op),
                               .inputs = inputs,
                               .attributes = std::move(attributes)},
                              site);
}

Output Exp(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kExp, {x}, site);
}

Output Log(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kLog, {x}, site);
}

Output Sqrt(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kSqrt, {x}, site);
}

Output Sin(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kSin, {x}, site);
}

Output Cos(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kCos, {x}, site);
}

Output Tanh(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kTanh, {x}, site);
}

Output Sigmoid(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kSigmoid, {x}, site);
}

Output Softplus(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kSoftplus, {x}, site);
}

Output Neg(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kNegate, {x}, site);
}

Output Abs(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kAbs, {x}, site);
}

Output Sign(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kSign, {x}, site);
}

Output Square(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kSquare, {x}, site);
}

Output Relu(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kRelu, {x}, site);
}

Output Not(Output x, CallSite site) {
  return AddScalarOp(ScalarOp::kNot, {x}, site);
}

Output Add(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kAdd, {a, b}, site);
}

Output Sub(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kSubtract, {a, b}, site);
}

Output Mul(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kMultiply, {a, b}, site);
}

Output Div(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kDivide, {a, b}, site);
}

Output Modulo(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kModulo, {a, b}, site);
}

Output Minimum(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kMinimum, {a, b}, site);
}

Output Maximum(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kMaximum, {a, b}, site);
}

Output Less(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kLess, {a, b}, site);
}

Output LessEqual(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kLessEqual, {a, b}, site);
}

Output Greater(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kGreater, {a, b}, site);
}

Output GreaterEqual(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kGreaterEqual, {a, b}, site);
}

Output Equal(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kEqual, {a, b}, site);
}

Output NotEqual(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kNotEqual, {a, b}, site);
}

Output And(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kAnd, {a, b}, site);
}

Output Or(Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kOr, {a, b}, site);
}

Output LeakyRelu(Output x, double slope, CallSite site) {
  const Graph::SiteScope scope(x, site);
  CheckParameter(*x.graph, slope >= 0.0,
                 fmt::format("LeakyRelu: want slope >= 0, got {}", slope));
  return AddScalarOp(ScalarOp::kLeakyRelu, {x}, site, slope);
}

Output Elu(Output x, double alpha, CallSite site) {
  const Graph::SiteScope scope(x, site);
  CheckParameter(*x.graph, alpha >= 0.0,
                 fmt::format("Elu: want alpha >= 0, got {}", alpha));
  return AddScalarOp(ScalarOp::kElu, {x}, site, alpha);
}

Output Clip(Output x, double low, double high, CallSite site) {
  const Graph::SiteScope scope(x, site);
  CheckParameter(
      *x.graph, low <= high,
      fmt::format("Clip: want low <= high, got {} and {}", low, high));
  return AddScalarOp(ScalarOp::kClip, {x}, site, low, high);
}

Output Affine(Output x, double scale, double offset, CallSite site) {
  return AddScalarOp(ScalarOp::kAffine, {x}, site, scale, offset);
}

Output Add(Output x, double number, CallSite site) {
  return Affine(x, 1.0, number, site);
}

Output Mul(Output x, double number, CallSite site) {
  return Affine(x, number, 0.0, site);
}

Output Where(Output condition, Output a, Output b, CallSite site) {
  return AddScalarOp(ScalarOp::kSelect, {condition, a, b}, site);
}

Output Cast(Output x, DType dtype, CallSite site) {
  return x.dtype() == dtype ? x : AddCopy(x, dtype, nullptr, site);
}

Output BroadcastTo(Output x, const Shape& shape, CallSite site) {
  return x.shape() == shape ? x : AddCopy(x, x.dtype(), &shape, site);
}

}  // namespace replicant::graph
