#include "engine/graph/ops/elementwise_gradient.h"

#include <array>

#include "base/check.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"

namespace replicant::graph {
namespace {

Output Zero(const Output& like) {
  return like.graph->Scalar(0.0, like.dtype());
}

const ScalarProgram::Instruction& InstructionOf(
    const GradientContext& context) {
  return context.node.attributes.Program("program").instructions[0];
}

// dy * d y / d x of an op of one input. Most are computed from y, so that the
// plan need not keep x.
Output UnaryGradient(const GradientContext& context) {
  const Output& x = context.input(0);
  const Output& y = context.output();
  const Output& dy = context.output_gradient();
  const ScalarProgram::Instruction& instruction = InstructionOf(context);
  switch (instruction.op) {
    case ScalarOp::kCopy:
      return Cast(dy, x.dtype());
    case ScalarOp::kNegate:
      return Neg(dy);
    case ScalarOp::kAbs:
      return Mul(dy, Sign(x));
    case ScalarOp::kExp:
      return Mul(dy, y);
    case ScalarOp::kLog:
      return Div(dy, x);
    case ScalarOp::kSqrt:
      return Div(Mul(dy, 0.5), y);
    case ScalarOp::kSquare:
      return Mul(dy, Mul(x, 2.0));
    case ScalarOp::kSin:
      return Mul(dy, Cos(x));
    case ScalarOp::kCos:
      return Neg(Mul(dy, Sin(x)));
    case ScalarOp::kTanh:
      return Mul(dy, Affine(Square(y), -1.0, 1.0));
    case ScalarOp::kSigmoid:
      return Mul(dy, Mul(y, Affine(y, -1.0, 1.0)));
    case ScalarOp::kSoftplus:
      return Mul(dy, Sigmoid(x));
    case ScalarOp::kRelu:
      return Where(Greater(y, Zero(y)), dy, Zero(dy));
    case ScalarOp::kLeakyRelu:
      return Where(Greater(y, Zero(y)), dy, Mul(dy, instruction.p));
    case ScalarOp::kElu:
      // for x <= 0: d/dx p (e^x - 1) = p e^x = y + p
      return Where(Greater(y, Zero(y)), dy, Mul(dy, Add(y, instruction.p)));
    case ScalarOp::kClip: {
      const Output low = x.graph->Scalar(instruction.p, x.dtype());
      const Output high = x.graph->Scalar(instruction.q, x.dtype());
      return Where(And(GreaterEqual(x, low), LessEqual(x, high)), dy, Zero(dy));
    }
    case ScalarOp::kAffine:
      return Mul(dy, instruction.p);
    default:
      break;
  }
  REPLICANT_CHECK(false, "no gradient of {}", ScalarOpName(instruction.op));
}

// The input taken gets dy; of two equal inputs each gets half of dy.
std::array<Output, 2> ExtremumGradient(const Output& a, const Output& b,
                                       const Output& dy, bool is_maximum) {
  const Output half = Mul(dy, 0.5);
  const Output tied = Equal(a, b);
  const Output a_taken = is_maximum ? Greater(a, b) : Less(a, b);
  const Output b_taken = is_maximum ? Less(a, b) : Greater(a, b);
  return {Where(a_taken, dy, Where(tied, half, Zero(dy))),
          Where(b_taken, dy, Where(tied, half, Zero(dy)))};
}

std::array<Output, 2> BinaryGradient(const GradientContext& context) {
  const Output& a = context.input(0);
  const Output& b = context.input(1);
  const Output& dy = context.output_gradient();
  switch (InstructionOf(context).op) {
    case ScalarOp::kAdd:
      return {dy, dy};
    case ScalarOp::kSubtract:
      return {dy, Neg(dy)};
    case ScalarOp::kMultiply:
      return {Mul(dy, b), Mul(dy, a)};
    case ScalarOp::kDivide:
      return {Div(dy, b), Neg(Div(Mul(dy, context.output()), b))};
    case ScalarOp::kMinimum:
      return ExtremumGradient(a, b, dy, /*is_maximum=*/false);
    case ScalarOp::kMaximum:
      return ExtremumGradient(a, b, dy, /*is_maximum=*/true);
    default:
      break;
  }
  REPLICANT_CHECK(false, "no gradient of {}",
                  ScalarOpName(InstructionOf(context).op));
}

}  // namespace

std::vector<Output> ElementwiseGradient(const GradientContext& context) {
  std::vector<Output> gradients;
  const Output& dy = context.output_gradient();
  switch (context.inputs.size()) {
    case 1:
      // no gradient flows into an integer
      if (!IsFloating(context.input(0).dtype())) return {kNoGradient};
      gradients = {UnaryGradient(context)};
      break;
    case 2: {
      const auto [da, db] = BinaryGradient(context);
      gradients = {da, db};
      break;
    }
    default: {
      const Output& condition = context.input(0);
      gradients = {kNoGradient, Where(condition, dy, Zero(dy)),
                   Where(condition, Zero(dy), dy)};
    }
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].is_valid()) continue;
    gradients[i] = SumTo(gradients[i], context.inputs[i].shape());
  }
  return gradients;
}

}  // namespace replicant::graph
