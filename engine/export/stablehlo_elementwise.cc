// Scalar programs: one StableHLO op or a few for each instruction.
#include <fmt/format.h>

#include <cmath>

#include "engine/export/stablehlo_forms.h"
#include "engine/graph/ops/elementwise.h"

namespace replicant::exporting {
namespace {

using graph::ScalarOp;
using Instruction = graph::ScalarProgram::Instruction;

bool IsWhole(double x) { return x == std::trunc(x); }

// The type in which an instruction computes. u8 saturates, so that a sum of
// bytes needs more room.
DType ComputeType(std::span<const HloValue> operands) {
  DType widest = operands.back().dtype;
  for (const HloValue& x : operands) {
    if (x.dtype == DType::kF64) return DType::kF64;
    if (graph::IsFloating(x.dtype)) widest = DType::kF32;
  }
  if (widest == DType::kU8) return DType::kI32;
  return widest == DType::kBF16 ? DType::kF32 : widest;
}

// --- ops of several instructions ---

// ln(1 + e^a) = max(a, 0) + ln(1 + e^-|a|), which cannot overflow.
HloValue Softplus(HloBuilder& b, const HloValue& a) {
  const HloValue larger = b.Binary("maximum", a, b.Like(0.0, a));
  const HloValue rest =
      b.Unary("log_plus_one",
              b.Unary("exponential", b.Unary("negate", b.Unary("abs", a))));
  return b.Add(larger, rest);
}

HloValue Where(HloBuilder& b, std::string_view direction, const HloValue& a,
               double number, const HloValue& then, const HloValue& otherwise) {
  return b.Select(b.Compare(direction, a, number), then, otherwise);
}

// Truncated; saturated where y is 0, and 0 for 0 / 0.
HloValue DivideIntegers(HloBuilder& b, const HloValue& x, const HloValue& y) {
  const HloValue zero = b.Like(0.0, x);
  const HloValue is_zero = b.Compare("EQ", y, 0.0);
  const HloValue quotient = b.Div(x, b.Select(is_zero, b.Like(1.0, y), y));
  const HloValue saturated =
      Where(b, "GT", x, 0.0, b.Like(kInfinity, x),
            Where(b, "LT", x, 0.0, b.Like(-kInfinity, x), zero));
  return b.Select(is_zero, saturated, quotient);
}

// The remainder with the sign of y; 0 where y is 0.
HloValue Modulo(HloBuilder& b, const HloValue& x, const HloValue& y) {
  const HloValue zero = b.Like(0.0, x);
  const HloValue is_zero = b.Compare("EQ", y, 0.0);
  const HloValue divisor = b.Select(is_zero, b.Like(1.0, y), y);
  const HloValue r = b.Binary("remainder", x, divisor);
  const HloValue has_other_sign =
      b.Compare("NE", b.Compare("LT", r, 0.0), b.Compare("LT", divisor, 0.0));
  const HloValue is_off =
      b.Binary("and", has_other_sign, b.Compare("NE", r, 0.0));
  return b.Select(is_zero, zero, b.Select(is_off, b.Add(r, divisor), r));
}

// p * a + q. The numbers may be fractions where a is an integer.
HloValue Affine(HloBuilder& b, const Instruction& i, const HloValue& a) {
  if (!graph::IsFloating(a.dtype) && !(IsWhole(i.p) && IsWhole(i.q))) {
    return Affine(b, i, b.Convert(a, DType::kF64));
  }
  HloValue y = a;
  if (i.p != 1.0) y = b.Mul(y, i.p);
  if (i.q != 0.0) y = b.Add(y, i.q);
  return y;
}

HloValue Clip(HloBuilder& b, const Instruction& i, const HloValue& a) {
  return b.Binary("minimum", b.Binary("maximum", a, b.Like(i.p, a)),
                  b.Like(i.q, a));
}

// --- one instruction ---

// The StableHLO op that computes the same; "" if there is none.
std::string_view PlainUnary(ScalarOp op) {
  switch (op) {
    case ScalarOp::kNegate:
      return "negate";
    case ScalarOp::kAbs:
      return "abs";
    case ScalarOp::kSign:
      return "sign";
    case ScalarOp::kExp:
      return "exponential";
    case ScalarOp::kLog:
      return "log";
    case ScalarOp::kSqrt:
      return "sqrt";
    case ScalarOp::kSin:
      return "sine";
    case ScalarOp::kCos:
      return "cosine";
    case ScalarOp::kTanh:
      return "tanh";
    case ScalarOp::kSigmoid:
      return "logistic";
    default:
      return "";
  }
}

std::string_view PlainBinary(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
      return "add";
    case ScalarOp::kSubtract:
      return "subtract";
    case ScalarOp::kMultiply:
      return "multiply";
    case ScalarOp::kMinimum:
      return "minimum";
    case ScalarOp::kMaximum:
      return "maximum";
    default:
      return "";
  }
}

std::string_view Direction(ScalarOp op) {
  switch (op) {
    case ScalarOp::kLess:
      return "LT";
    case ScalarOp::kLessEqual:
      return "LE";
    case ScalarOp::kGreater:
      return "GT";
    case ScalarOp::kGreaterEqual:
      return "GE";
    case ScalarOp::kEqual:
      return "EQ";
    case ScalarOp::kNotEqual:
      return "NE";
    default:
      return "";
  }
}

HloValue WriteUnary(HloBuilder& b, const Instruction& i, const HloValue& a) {
  if (const std::string_view op = PlainUnary(i.op); !op.empty()) {
    return b.Unary(op, a);
  }
  switch (i.op) {
    case ScalarOp::kSquare:
      return b.Mul(a, a);
    case ScalarOp::kSoftplus:
      return Softplus(b, a);
    case ScalarOp::kRelu:
      return b.Binary("maximum", a, b.Like(0.0, a));
    case ScalarOp::kLeakyRelu:
      return Where(b, "GT", a, 0.0, a, b.Mul(a, i.p));
    case ScalarOp::kElu:
      return Where(b, "GT", a, 0.0, a,
                   b.Mul(b.Unary("exponential_minus_one", a), i.p));
    case ScalarOp::kClip:
      return Clip(b, i, a);
    case ScalarOp::kAffine:
      return Affine(b, i, a);
    case ScalarOp::kNot:
      return b.Compare("EQ", a, 0.0);
    default:
      return a;  // kCopy
  }
}

HloValue WriteBinary(HloBuilder& b, const Instruction& i, const HloValue& x,
                     const HloValue& y) {
  if (const std::string_view op = PlainBinary(i.op); !op.empty()) {
    return b.Binary(op, x, y);
  }
  if (const std::string_view direction = Direction(i.op); !direction.empty()) {
    return b.Compare(direction, x, y);
  }
  switch (i.op) {
    case ScalarOp::kModulo:
      return Modulo(b, x, y);
    case ScalarOp::kAnd:
      return b.Binary("and", x, y);
    case ScalarOp::kOr:
      return b.Binary("or", x, y);
    default:  // kDivide
      return graph::IsFloating(x.dtype) ? b.Div(x, y) : DivideIntegers(b, x, y);
  }
}

HloValue WriteInstruction(HloBuilder& b, const Instruction& i,
                          HloValues operands) {
  if (i.op == ScalarOp::kCopy) return b.Convert(operands[0], i.dtype);
  if (i.op == ScalarOp::kSelect) {
    // moves elements and computes nothing
    return b.Select(operands[0], b.Convert(operands[1], i.dtype),
                    b.Convert(operands[2], i.dtype));
  }
  const DType compute = ComputeType(operands);
  for (HloValue& x : operands) x = b.Convert(x, compute);
  const HloValue y = operands.size() == 1
                         ? WriteUnary(b, i, operands[0])
                         : WriteBinary(b, i, operands[0], operands[1]);
  return b.Convert(y, i.dtype);
}

}  // namespace

HloValues WriteElementwise(HloBuilder& builder, const StableHloNode& node) {
  const graph::ScalarProgram& program = node.attributes().Program("program");
  HloValues values;
  for (const HloValue& input : node.inputs) {
    values.push_back(builder.BroadcastTo(input, node.type().shape));
  }
  for (const Instruction& instruction : program.instructions) {
    HloValues operands;
    for (int i = 0; i < graph::ScalarOpArity(instruction.op); ++i) {
      operands.push_back(values.at(static_cast<size_t>(
          instruction.operands.at(static_cast<size_t>(i)))));
    }
    values.push_back(
        WriteInstruction(builder, instruction, std::move(operands)));
  }
  return {values.back()};
}

}  // namespace replicant::exporting
