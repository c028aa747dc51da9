#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/dtype.h"

namespace replicant::graph {

// The function that an elementwise op applies to one element: operands a, b, c
// in order, parameters p, q. Comparisons and logical ops return 1 or 0.
enum class ScalarOp : uint8_t {
  kCopy,          // a, rounded to the result's type: also Cast
  kNegate,        // -a
  kAbs,           // |a|
  kSign,          // -1, 0 or 1
  kExp,           // e^a
  kLog,           // ln a
  kSqrt,          // sqrt a
  kSquare,        // a * a
  kSin,           // sin a
  kCos,           // cos a
  kTanh,          // tanh a
  kSigmoid,       // 1 / (1 + e^-a)
  kSoftplus,      // ln(1 + e^a)
  kRelu,          // max(a, 0)
  kLeakyRelu,     // a > 0 ? a : p * a
  kElu,           // a > 0 ? a : p * (e^a - 1)
  kClip,          // min(max(a, p), q)
  kAffine,        // p * a + q
  kNot,           // a == 0
  kAdd,           // a + b
  kSubtract,      // a - b
  kMultiply,      // a * b
  kDivide,        // a / b; for integers truncated, saturated where b is 0
  kModulo,        // a - b * floor(a / b); 0 where b is 0
  kMinimum,       // b < a ? b : a; NaN if either is
  kMaximum,       // b > a ? b : a; NaN if either is
  kLess,          // a < b
  kLessEqual,     // a <= b
  kGreater,       // a > b
  kGreaterEqual,  // a >= b
  kEqual,         // a == b
  kNotEqual,      // a != b
  kAnd,           // a != 0 and b != 0
  kOr,            // a != 0 or b != 0
  kSelect,        // a != 0 ? b : c
};

inline constexpr int kNumScalarOps = static_cast<int>(ScalarOp::kSelect) + 1;

// Name of the graph op: "Relu".
std::string_view ScalarOpName(ScalarOp op);
// Number of operands: 1, 2 or 3.
int ScalarOpArity(ScalarOp op);
// Number of parameters in use: 0, 1 or 2.
int ScalarOpParameters(ScalarOp op);

// Evaluates `op` in double. This is the definition; every backend's kernel must
// agree with it.
double EvaluateScalarOp(ScalarOp op, double a, double b, double c, double p,
                        double q);

// Converts `value` to a number that `dtype` can hold: rounded to nearest for
// f32 and bf16, truncated and saturated for integers (NaN gives 0), != 0 for
// bool.
double RoundToDType(double value, DType dtype);

// A chain of scalar ops, computed for every element at once. An elementwise
// node carries one; so does the fusion of several such nodes.
//
// Values are numbered: 0 .. num_inputs-1 are the elements of the inputs (each
// broadcast to the output's shape), num_inputs + i is the result of
// instruction i. The last instruction computes the output. Each result is
// rounded to its instruction's dtype, so that a fused chain computes the same
// bits as the nodes that it replaces.
struct ScalarProgram {
  struct Instruction {
    bool operator==(const Instruction&) const = default;

    ScalarOp op = ScalarOp::kCopy;
    DType dtype = DType::kF32;
    // value numbers; only the first ScalarOpArity(op) count
    std::array<int, 3> operands = {0, 0, 0};
    double p = 0.0;
    double q = 0.0;
  };
  // Maximum instructions of a program; longer chains are not fused.
  static constexpr int kMaxInstructions = 32;
  static constexpr int kMaxInputs = 16;

  bool operator==(const ScalarProgram&) const = default;

  // "%2=Add(%0,%1):f32 %3=Relu(%2):f32".
  std::string ToString() const;

  int num_inputs = 0;
  std::vector<Instruction> instructions;
};

}  // namespace replicant::graph
