#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "engine/graph/tensor_type.h"

namespace replicant::exporting {

using Dims = std::vector<int64_t>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A tensor type of MLIR: "tensor<3x51xf32>", "tensor<ui8>", "tensor<4xi1>".
std::string MlirTensor(DType dtype, const Shape& shape);
// A string literal of MLIR.
std::string MlirString(std::string_view text);

// A value of a function in text: "%12".
struct HloValue {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

// Writes the body of a function of StableHLO, one op after the other. Callers
// pass types that the op takes; only a parser finds errors. No call emits an op
// that would change nothing.
//
// Thread-safety: one thread at a time.
class HloBuilder {
 public:
  explicit HloBuilder(int num_replicas) : num_replicas_(num_replicas) {}

  // Replicas of the module.
  int num_replicas() const { return num_replicas_; }
  // The ops so far, one per line.
  const std::string& text() const { return text_; }
  // Names the following ops after this node in XLA's profiles and messages.
  void SetLocation(std::string_view name);

  // --- any op ---

  // A function of two scalars inside of an op.
  struct Region {
    // "add"; "compare" with a direction gives bools
    std::string_view op;
    DType dtype = DType::kF32;
    std::string_view direction = {};
  };
  struct OpSpec {
    std::string_view op;  // "add": of the dialect stablehlo
    std::vector<HloValue> operands;
    DType dtype = DType::kF32;
    Shape shape;
    // "dimension = 0 : i64"; empty for none.
    std::string attributes = {};
    std::vector<Region> regions = {};
  };
  HloValue Op(const OpSpec& spec);

  // --- elements, one by one: operands of one shape ---

  HloValue Unary(std::string_view op, const HloValue& x);
  HloValue Binary(std::string_view op, const HloValue& a, const HloValue& b);
  HloValue Add(const HloValue& a, const HloValue& b);
  HloValue Sub(const HloValue& a, const HloValue& b);
  HloValue Mul(const HloValue& a, const HloValue& b);
  HloValue Div(const HloValue& a, const HloValue& b);
  // With a number, rounded to x's dtype.
  HloValue Add(const HloValue& x, double number) {
    return Add(x, Like(number, x));
  }
  HloValue Mul(const HloValue& x, double number) {
    return Mul(x, Like(number, x));
  }
  // `direction`: EQ, NE, GE, GT, LE, LT. Returns bools; NaN is unordered.
  HloValue Compare(std::string_view direction, const HloValue& a,
                   const HloValue& b);
  HloValue Compare(std::string_view direction, const HloValue& x,
                   double number) {
    return Compare(direction, x, Like(number, x));
  }
  HloValue Select(const HloValue& condition, const HloValue& a,
                  const HloValue& b);
  // x as another element type, as graph::RoundToDType() converts numbers: to
  // nearest for floating types, truncated and saturated for integers, != 0 for
  // bool.
  HloValue Convert(const HloValue& x, DType dtype);
  // bf16 as f32, other types unchanged: the type that an op computes in.
  HloValue Widen(const HloValue& x);

  // --- constants ---

  HloValue Constant(TensorView value);
  // `value` in every element, rounded to the dtype.
  HloValue Fill(double value, DType dtype, const Shape& shape);
  HloValue Like(double value, const HloValue& x) {
    return Fill(value, x.dtype, x.shape);
  }
  // Index of each element along `axis`.
  HloValue Iota(DType dtype, const Shape& shape, int axis);

  // --- shapes ---

  HloValue Reshape(const HloValue& x, const Shape& shape);
  HloValue Transpose(const HloValue& x, const Dims& permutation);
  // Axis i of x becomes axis axes[i] of the result, whose other axes repeat it.
  HloValue BroadcastInDim(const HloValue& x, const Shape& shape,
                          const Dims& axes);
  // As NumPy broadcasts.
  HloValue BroadcastTo(const HloValue& x, const Shape& shape);
  HloValue Slice(const HloValue& x, const Dims& begin, const Dims& end);
  // New elements are `value`, rounded to x's dtype; negative counts crop.
  HloValue Pad(const HloValue& x, double value, const Dims& before,
               const Dims& after, const Dims& between);
  HloValue Concat(const std::vector<HloValue>& xs, int64_t axis);

  // Number of the replica that runs the module, i32 [].
  HloValue ReplicaId();

  // --- reductions ---

  // `op`: "add", "maximum", "minimum"; `first` is the neutral element. The axes
  // are gone from the result.
  HloValue Reduce(std::string_view op, double first, const HloValue& x,
                  const Dims& axes);
  HloValue Sum(const HloValue& x, const Dims& axes) {
    return Reduce("add", 0.0, x, axes);
  }

 private:
  std::string NewName();
  void WriteRegion(const Region& region);
  HloValue ToInteger(const HloValue& x, DType dtype);

  int num_replicas_;
  std::string text_;
  std::string location_;
  int64_t num_names_ = 0;
};

}  // namespace replicant::exporting
