#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/tensor_type.h"
#include "core/tensor/tensor_view.h"

namespace replicant::exporting {

// "f32", "ui8", "i1": an element type of MLIR.
std::string_view MlirType(DType dtype);
// "tensor<3x51xf32>"
std::string MlirType(DType dtype, const Shape& shape);

// A value of a function in text: "%12".
struct HloValue {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

// Writes the body of a function of StableHLO, one op after the other. Callers
// keep to the types that an op takes; a parser finds what is wrong.
//
// Thread-safety: one thread at a time.
class HloBuilder {
 public:
  explicit HloBuilder(int num_replicas) : num_replicas_(num_replicas) {}

  // Of the module.
  int num_replicas() const { return num_replicas_; }
  // The ops so far, one a line.
  const std::string& text() const { return text_; }

  // --- any op ---

  // The ops inside of an op: a function of scalars, by its arguments.
  using RegionFn =
      std::function<HloValue(HloBuilder&, std::span<const HloValue>)>;
  struct OpSpec {
    std::string_view op;  // "add": of the dialect stablehlo
    std::vector<HloValue> operands;
    DType dtype = DType::kF32;
    Shape shape;
    // "dimension = 0 : i64"; empty for none.
    std::string attributes = {};
    // Empty for none; `region_arguments` are its scalars.
    RegionFn region = {};
    std::vector<DType> region_arguments = {};
  };
  HloValue Op(const OpSpec& spec);

  // --- ops on values of one type ---

  HloValue Unary(std::string_view op, const HloValue& x);
  HloValue Binary(std::string_view op, const HloValue& a, const HloValue& b);
  // `direction`: EQ, NE, GE, GT, LE, LT. Returns bools.
  HloValue Compare(std::string_view direction, const HloValue& a,
                   const HloValue& b);
  HloValue Select(const HloValue& condition, const HloValue& a,
                  const HloValue& b);
  // x of another element type, as XLA converts.
  HloValue Convert(const HloValue& x, DType dtype);

  // --- constants ---

  HloValue Constant(TensorView value);
  // `value` in every element; infinities and NaN are allowed.
  HloValue Fill(double value, DType dtype, const Shape& shape);
  // As x.
  HloValue Like(double value, const HloValue& x) {
    return Fill(value, x.dtype, x.shape);
  }
  // Index of each element along `axis`.
  HloValue Iota(DType dtype, const Shape& shape, int axis);

  // --- shapes ---

  HloValue Reshape(const HloValue& x, const Shape& shape);
  HloValue Transpose(const HloValue& x, std::span<const int64_t> permutation);
  // Axis i of x becomes axis axes[i] of the result, whose other axes repeat it.
  HloValue BroadcastInDim(const HloValue& x, const Shape& shape,
                          std::span<const int64_t> axes);
  // As NumPy broadcasts.
  HloValue BroadcastTo(const HloValue& x, const Shape& shape);
  HloValue Slice(const HloValue& x, std::span<const int64_t> begin,
                 std::span<const int64_t> end,
                 std::span<const int64_t> stride);
  // `value` is a scalar. Negative numbers of elements are cut off.
  HloValue Pad(const HloValue& x, const HloValue& value,
               std::span<const int64_t> before, std::span<const int64_t> after,
               std::span<const int64_t> between);
  HloValue Concat(std::span<const HloValue> xs, int64_t axis);

  // --- reductions ---

  // `op`: add, maximum, minimum, multiply, and, or; `first` is the value that
  // changes nothing. The axes are gone from the result.
  HloValue Reduce(std::string_view op, const HloValue& x, double first,
                  std::span<const int64_t> axes);

 private:
  std::string NewName();
  void Line(std::string_view line);

  int num_replicas_;
  std::string text_;
  int64_t num_names_ = 0;
  int depth_ = 2;
};

}  // namespace replicant::exporting
