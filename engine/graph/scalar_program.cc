#include "engine/graph/scalar_program.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/check.h"

namespace replicant::graph {
namespace {

struct ScalarOpInfo {
  ScalarOp op;
  std::string_view name;
  int arity;
  int parameters;
};

constexpr std::array<ScalarOpInfo, kNumScalarOps> kScalarOps = {{
    {ScalarOp::kCopy, "Copy", 1, 0},
    {ScalarOp::kNegate, "Neg", 1, 0},
    {ScalarOp::kAbs, "Abs", 1, 0},
    {ScalarOp::kSign, "Sign", 1, 0},
    {ScalarOp::kExp, "Exp", 1, 0},
    {ScalarOp::kLog, "Log", 1, 0},
    {ScalarOp::kSqrt, "Sqrt", 1, 0},
    {ScalarOp::kSquare, "Square", 1, 0},
    {ScalarOp::kSin, "Sin", 1, 0},
    {ScalarOp::kCos, "Cos", 1, 0},
    {ScalarOp::kTanh, "Tanh", 1, 0},
    {ScalarOp::kSigmoid, "Sigmoid", 1, 0},
    {ScalarOp::kSoftplus, "Softplus", 1, 0},
    {ScalarOp::kRelu, "Relu", 1, 0},
    {ScalarOp::kLeakyRelu, "LeakyRelu", 1, 1},
    {ScalarOp::kElu, "Elu", 1, 1},
    {ScalarOp::kClip, "Clip", 1, 2},
    {ScalarOp::kAffine, "Affine", 1, 2},
    {ScalarOp::kNot, "Not", 1, 0},
    {ScalarOp::kAdd, "Add", 2, 0},
    {ScalarOp::kSubtract, "Sub", 2, 0},
    {ScalarOp::kMultiply, "Mul", 2, 0},
    {ScalarOp::kDivide, "Div", 2, 0},
    {ScalarOp::kModulo, "Modulo", 2, 0},
    {ScalarOp::kMinimum, "Minimum", 2, 0},
    {ScalarOp::kMaximum, "Maximum", 2, 0},
    {ScalarOp::kLess, "Less", 2, 0},
    {ScalarOp::kLessEqual, "LessEqual", 2, 0},
    {ScalarOp::kGreater, "Greater", 2, 0},
    {ScalarOp::kGreaterEqual, "GreaterEqual", 2, 0},
    {ScalarOp::kEqual, "Equal", 2, 0},
    {ScalarOp::kNotEqual, "NotEqual", 2, 0},
    {ScalarOp::kAnd, "And", 2, 0},
    {ScalarOp::kOr, "Or", 2, 0},
    {ScalarOp::kSelect, "Where", 3, 0},
}};

constexpr bool IsInEnumOrder() {
  for (int i = 0; i < kNumScalarOps; ++i) {
    if (static_cast<int>(kScalarOps[static_cast<size_t>(i)].op) != i) {
      return false;
    }
  }
  return true;
}
static_assert(IsInEnumOrder());

const ScalarOpInfo& Info(ScalarOp op) {
  return kScalarOps[static_cast<size_t>(op)];
}

double Minimum(double a, double b) {
  if (std::isnan(a)) return a;
  return b < a || std::isnan(b) ? b : a;
}

double Maximum(double a, double b) {
  if (std::isnan(a)) return a;
  return b > a || std::isnan(b) ? b : a;
}

// 1 / (1 + e^-a) without overflow for large negative a.
double Sigmoid(double a) {
  if (a >= 0.0) return 1.0 / (1.0 + std::exp(-a));
  const double e = std::exp(a);
  return e / (1.0 + e);
}

// ln(1 + e^a) = max(a, 0) + ln(1 + e^-|a|), which cannot overflow.
double Softplus(double a) {
  return std::fmax(a, 0.0) + std::log1p(std::exp(-std::fabs(a))) +
         (std::isnan(a) ? a : 0.0);
}

// Clips to [low, high] and keeps NaN, for which std::clamp is undefined.
double Clip(double a, double low, double high) {
  return std::isnan(a) ? a : std::fmin(std::fmax(a, low), high);
}

double Sign(double a) {
  if (std::isnan(a)) return a;
  return a > 0.0 ? 1.0 : (a < 0.0 ? -1.0 : 0.0);
}

double Truth(bool value) { return value ? 1.0 : 0.0; }

double EvaluateUnary(ScalarOp op, double a, double p, double q) {
  switch (op) {
    case ScalarOp::kCopy:
      return a;
    case ScalarOp::kNegate:
      return -a;
    case ScalarOp::kAbs:
      return std::fabs(a);
    case ScalarOp::kSign:
      return Sign(a);
    case ScalarOp::kExp:
      return std::exp(a);
    case ScalarOp::kLog:
      return std::log(a);
    case ScalarOp::kSqrt:
      return std::sqrt(a);
    case ScalarOp::kSquare:
      return a * a;
    case ScalarOp::kSin:
      return std::sin(a);
    case ScalarOp::kCos:
      return std::cos(a);
    case ScalarOp::kTanh:
      return std::tanh(a);
    case ScalarOp::kSigmoid:
      return Sigmoid(a);
    case ScalarOp::kSoftplus:
      return Softplus(a);
    case ScalarOp::kRelu:
      return a > 0.0 || std::isnan(a) ? a : 0.0;
    case ScalarOp::kLeakyRelu:
      return a > 0.0 ? a : p * a;
    case ScalarOp::kElu:
      return a > 0.0 ? a : p * std::expm1(a);
    case ScalarOp::kClip:
      return Clip(a, p, q);
    case ScalarOp::kAffine:
      return p * a + q;
    case ScalarOp::kNot:
      return Truth(a == 0.0);
    default:
      break;
  }
  REPLICANT_CHECK(false, "{} is not unary", ScalarOpName(op));
}

double EvaluateBinary(ScalarOp op, double a, double b) {
  switch (op) {
    case ScalarOp::kAdd:
      return a + b;
    case ScalarOp::kSubtract:
      return a - b;
    case ScalarOp::kMultiply:
      return a * b;
    case ScalarOp::kDivide:
      return a / b;
    case ScalarOp::kModulo:
      return b == 0.0 ? 0.0 : a - b * std::floor(a / b);
    case ScalarOp::kMinimum:
      return Minimum(a, b);
    case ScalarOp::kMaximum:
      return Maximum(a, b);
    case ScalarOp::kLess:
      return Truth(a < b);
    case ScalarOp::kLessEqual:
      return Truth(a <= b);
    case ScalarOp::kGreater:
      return Truth(a > b);
    case ScalarOp::kGreaterEqual:
      return Truth(a >= b);
    case ScalarOp::kEqual:
      return Truth(a == b);
    case ScalarOp::kNotEqual:
      return Truth(a != b);
    case ScalarOp::kAnd:
      return Truth(a != 0.0 && b != 0.0);
    case ScalarOp::kOr:
      return Truth(a != 0.0 || b != 0.0);
    default:
      break;
  }
  REPLICANT_CHECK(false, "{} is not binary", ScalarOpName(op));
}

template <typename Int>
double RoundToInteger(double value) {
  // the largest double that converts without overflow lies below max() + 1
  constexpr auto kLow = static_cast<double>(std::numeric_limits<Int>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<Int>::max());
  if (std::isnan(value)) return 0.0;
  if (value <= kLow) return kLow;
  if (value >= kHigh) return kHigh;
  return std::trunc(value);
}

}  // namespace

std::string_view ScalarOpName(ScalarOp op) { return Info(op).name; }

int ScalarOpArity(ScalarOp op) { return Info(op).arity; }

int ScalarOpParameters(ScalarOp op) { return Info(op).parameters; }

double EvaluateScalarOp(ScalarOp op, double a, double b, double c, double p,
                        double q) {
  switch (ScalarOpArity(op)) {
    case 1:
      return EvaluateUnary(op, a, p, q);
    case 2:
      return EvaluateBinary(op, a, b);
    default:
      return a != 0.0 ? b : c;
  }
}

double RoundToDType(double value, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return value;
    case DType::kF32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kBF16:
      return static_cast<double>(
          static_cast<float>(BFloat16(static_cast<float>(value))));
    case DType::kU8:
      return RoundToInteger<uint8_t>(value);
    case DType::kI32:
      return RoundToInteger<int32_t>(value);
    case DType::kI64:
      return RoundToInteger<int64_t>(value);
    case DType::kBool:
      return Truth(value != 0.0);
  }
  REPLICANT_CHECK(false, "unknown dtype {}", static_cast<int>(dtype));
}

std::string ScalarProgram::ToString() const {
  std::string text;
  int value = num_inputs;
  for (const Instruction& i : instructions) {
    if (!text.empty()) text += ' ';
    text += fmt::format("%{}={}(", value++, ScalarOpName(i.op));
    for (int k = 0; k < ScalarOpArity(i.op); ++k) {
      text += fmt::format("{}%{}", k > 0 ? "," : "",
                          i.operands[static_cast<size_t>(k)]);
    }
    if (ScalarOpParameters(i.op) > 0) text += fmt::format(",{}", i.p);
    if (ScalarOpParameters(i.op) > 1) text += fmt::format(",{}", i.q);
    text += fmt::format("):{}", DTypeName(i.dtype));
  }
  return text;
}

}  // namespace replicant::graph
