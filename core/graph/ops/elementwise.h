#pragma once

#include <optional>
#include <vector>

#include "core/graph/graph.h"

// Ops that treat every element alone. The formula of each, in double, is
// EvaluateScalarOp() (graph/scalar_program.h); the result is rounded once to
// the output's dtype.
//
// Shapes broadcast as in NumPy: counted from the last, dimensions must be equal
// or one of them 1 or missing. A gradient is summed back to its input's shape.
//
// Types: inputs of one op have one dtype. "Floating" below means f32, f64 or
// bf16, "numeric" any but bool.
//
// Every function throws ShapeError at `site` for a type or shape that it does
// not take.
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
// gradient is read off the sign of the result.
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
// Where both are equal each gets half of the gradient, as in PyTorch.
Output Minimum(Output a, Output b, CallSite site = CallSite::Here());
Output Maximum(Output a, Output b, CallSite site = CallSite::Here());

// With a number, which is rounded to x's dtype after the computation.
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

// condition ? a : b, element by element; condition is bool, a and b are of one
// dtype. No gradient flows into the condition, and none from the branch that
// was not taken, not even NaN.
Output Where(Output condition, Output a, Output b,
             CallSite site = CallSite::Here());

// x as another dtype: rounded to nearest for floating types, truncated and
// saturated for integers, != 0 for bool. Differentiable between floating types.
Output Cast(Output x, DType dtype, CallSite site = CallSite::Here());

// x repeated along its missing dimensions and those of size 1.
Output BroadcastTo(Output x, const Shape& shape,
                   CallSite site = CallSite::Here());

// Any scalar op; the functions above are it with a name.
Output AddScalarOp(ScalarOp op, const std::vector<Output>& inputs, double p,
                   double q, CallSite site);

// The op that fuse_elementwise makes: attributes "program" and "shape". It
// has no gradient, because passes run after Gradients().
const OpDef& FusedElementwiseOp();

// The shape that both broadcast to; std::nullopt if there is none.
std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b);

}  // namespace replicant::graph
