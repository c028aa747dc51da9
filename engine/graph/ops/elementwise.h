#pragma once

#include <optional>
#include <vector>

#include "engine/graph/graph.h"

// Ops that compute each element by itself. EvaluateScalarOp()
// (graph/scalar_program.h) has the formula of each, in double; the result is
// rounded once to the output's dtype.
//
// Shapes broadcast as in NumPy: counted from the last, dimensions must be equal
// or one of them 1 or missing. A gradient is summed back to its input's shape.
//
// Types: inputs of one op have one dtype. "Floating" below means f32, f64 or
// bf16, "numeric" any but bool.
//
// Every function throws ShapeError at `site` for a type or shape that the op
// does not accept.
namespace replicant::graph {

// Floating, one input.
Output Exp(Output x, CallSite site = CallSite::Here());
Output Log(Output x, CallSite site = CallSite::Here());
Output Sqrt(Output x, CallSite site = CallSite::Here());
Output Sin(Output x, CallSite site = CallSite::Here());
Output Cos(Output x, CallSite site = CallSite::Here());
Output Tanh(Output x, CallSite site = CallSite::Here());
Output Sigmoid(Output x, CallSite site = CallSite::Here());
// ln(1 + e^x)
Output Softplus(Output x, CallSite site = CallSite::Here());
// x > 0 ? x : slope * x. Throws InvalidArgument unless slope >= 0, because the
// gradient follows from the sign of the result.
Output LeakyRelu(Output x, double slope, CallSite site = CallSite::Here());
// x > 0 ? x : alpha * (e^x - 1). Throws InvalidArgument unless alpha >= 0.
Output Elu(Output x, double alpha = 1.0, CallSite site = CallSite::Here());

// Numeric, one input.
Output Neg(Output x, CallSite site = CallSite::Here());
Output Abs(Output x, CallSite site = CallSite::Here());
// -1, 0 or 1. No gradient: it is zero wherever it exists.
Output Sign(Output x, CallSite site = CallSite::Here());
Output Square(Output x, CallSite site = CallSite::Here());
// The gradient at 0 is 0, as in PyTorch.
Output Relu(Output x, CallSite site = CallSite::Here());
// min(max(x, low), high); the gradient is 1 on the bounds. Throws
// InvalidArgument unless low <= high.
Output Clip(Output x, double low, double high,
            CallSite site = CallSite::Here());
// scale * x + offset
Output Affine(Output x, double scale, double offset,
              CallSite site = CallSite::Here());

// Numeric, two inputs.
Output Add(Output a, Output b, CallSite site = CallSite::Here());
Output Sub(Output a, Output b, CallSite site = CallSite::Here());
Output Mul(Output a, Output b, CallSite site = CallSite::Here());
// Integers: truncated, saturated where b is 0.
Output Div(Output a, Output b, CallSite site = CallSite::Here());
// a - b * floor(a / b), 0 where b is 0. No gradient: meant for counters.
Output Modulo(Output a, Output b, CallSite site = CallSite::Here());
// Equal elements get half of the gradient each, as in PyTorch.
Output Minimum(Output a, Output b, CallSite site = CallSite::Here());
Output Maximum(Output a, Output b, CallSite site = CallSite::Here());

// With a number; the result is rounded to x's dtype.
Output Add(Output x, double number, CallSite site = CallSite::Here());
Output Mul(Output x, double number, CallSite site = CallSite::Here());

// Comparisons: bool. No gradient: they are steps.
Output Less(Output a, Output b, CallSite site = CallSite::Here());
Output LessEqual(Output a, Output b, CallSite site = CallSite::Here());
Output Greater(Output a, Output b, CallSite site = CallSite::Here());
Output GreaterEqual(Output a, Output b, CallSite site = CallSite::Here());
Output Equal(Output a, Output b, CallSite site = CallSite::Here());
Output NotEqual(Output a, Output b, CallSite site = CallSite::Here());
// Bool to bool.
Output And(Output a, Output b, CallSite site = CallSite::Here());
Output Or(Output a, Output b, CallSite site = CallSite::Here());
Output Not(Output a, CallSite site = CallSite::Here());

// condition ? a : b, element by element; condition is bool, a and b have one
// dtype. No gradient flows into the condition. The branch not taken gets a zero
// gradient, never NaN.
Output Where(Output condition, Output a, Output b,
             CallSite site = CallSite::Here());

// x as another dtype: rounded to nearest for floating types, truncated and
// saturated for integers, != 0 for bool. Differentiable between floating types.
Output Cast(Output x, DType dtype, CallSite site = CallSite::Here());

// Repeats x along its missing dimensions and its dimensions of size 1.
Output BroadcastTo(Output x, const Shape& shape,
                   CallSite site = CallSite::Here());

// Adds any scalar op with its parameters p and q: the functions above under one
// name.
Output AddScalarOp(ScalarOp op, const std::vector<Output>& inputs,
                   CallSite site, double p = 0.0, double q = 0.0);

// The op that the pass fuse_elementwise adds: attributes "program" and "shape".
// It has no gradient, because passes run after Gradients().
const OpDef& FusedElementwiseOp();

// Returns the shape that both broadcast to, or std::nullopt.
std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b);

}  // namespace replicant::graph
