#include "engine/export/stablehlo_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/tensor/host_tensor.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/scalar_program.h"

namespace replicant::exporting {
namespace {

std::string_view ElementType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kU8:
      return "ui8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kBool:
      return "i1";
  }
  REPLICANT_CHECK(false, "unknown dtype {}", static_cast<int>(dtype));
}

std::string TypeOf(const HloValue& x) { return MlirTensor(x.dtype, x.shape); }

std::string Array(const Dims& values) {
  return values.empty()
             ? "array<i64>"
             : fmt::format("array<i64: {}>", fmt::join(values, ", "));
}

Dims AllAxes(int rank) {
  Dims axes(static_cast<size_t>(rank));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  return axes;
}

// The bytes of elements as a hexadecimal literal of MLIR.
std::string Hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text = "\"0x";
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<size_t>(b) >> 4];
    text += kDigits[std::to_integer<size_t>(b) & 15];
  }
  return text + '"';
}

// A number as MLIR reads it. For f32 and bf16 no exact decimal form is shorter
// than the bits.
std::string Literal(double value, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      const auto x = static_cast<float>(value);
      uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof(bits));
      // small whole numbers stay readable
      if (value == std::trunc(value) && std::fabs(value) < 1e6) {
        return fmt::format("{:.1f}", value);
      }
      return fmt::format("0x{:08X}", bits);
    }
    case DType::kF64: {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      return fmt::format("0x{:016X}", bits);
    }
    case DType::kBF16: {
      const BFloat16 x(static_cast<float>(value));
      uint16_t bits = 0;
      std::memcpy(&bits, &x, sizeof(bits));
      return fmt::format("0x{:04X}", bits);
    }
    case DType::kBool:
      return value != 0.0 ? "true" : "false";
    default:
      break;
  }
  // 2^63, to which an i64 saturates in double, is one too many
  constexpr double kTooLarge = 0x1p63;
  return value >= kTooLarge
             ? std::to_string(std::numeric_limits<int64_t>::max())
             : std::to_string(static_cast<int64_t>(value));
}

}  // namespace

std::string MlirTensor(DType dtype, const Shape& shape) {
  std::string text = "tensor<";
  for (const int64_t dim : shape.dims()) text += fmt::format("{}x", dim);
  return fmt::format("{}{}>", text, ElementType(dtype));
}

std::string MlirString(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const bool is_plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    quoted += is_plain ? std::string(1, c)
                       : fmt::format("\\{:02X}", static_cast<uint8_t>(c));
  }
  return quoted + '"';
}

void HloBuilder::SetLocation(std::string_view name) {
  location_ = fmt::format(" loc({})", MlirString(name));
}

std::string HloBuilder::NewName() { return fmt::format("%{}", num_names_++); }

void HloBuilder::WriteRegion(const Region& region) {
  const std::string scalar = MlirTensor(region.dtype, Shape({}));
  const bool is_compare = !region.direction.empty();
  const std::string result =
      is_compare ? MlirTensor(DType::kBool, Shape({})) : scalar;
  const std::string a = NewName();
  const std::string b = NewName();
  const std::string y = NewName();
  text_ += fmt::format("{{\n    ^bb0({}: {}, {}: {}):\n", a, scalar, b, scalar);
  text_ += fmt::format(
      "      {} = \"stablehlo.{}\"({}, {}){} : ({}, {}) -> {}\n", y, region.op,
      a, b,
      is_compare ? fmt::format(" <{{comparison_direction = "
                               "#stablehlo<comparison_direction {}>}}>",
                               region.direction)
                 : "",
      scalar, scalar, result);
  text_ += fmt::format("      \"stablehlo.return\"({}) : ({}) -> ()\n    }}", y,
                       result);
}

HloValue HloBuilder::Op(const OpSpec& spec) {
  HloValue result{NewName(), spec.dtype, spec.shape};
  std::vector<std::string_view> names;
  std::vector<std::string> types;
  for (const HloValue& operand : spec.operands) {
    names.push_back(operand.name);
    types.push_back(TypeOf(operand));
  }
  text_ += fmt::format("    {} = \"stablehlo.{}\"({})", result.name, spec.op,
                       fmt::join(names, ", "));
  if (!spec.attributes.empty()) {
    text_ += fmt::format(" <{{{}}}>", spec.attributes);
  }
  for (size_t i = 0; i < spec.regions.size(); ++i) {
    text_ += i == 0 ? " (" : ", ";
    WriteRegion(spec.regions[i]);
  }
  if (!spec.regions.empty()) text_ += ')';
  text_ += fmt::format(" : ({}) -> {}{}\n", fmt::join(types, ", "),
                       TypeOf(result), location_);
  return result;
}

// --- elements ---

HloValue HloBuilder::Unary(std::string_view op, const HloValue& x) {
  return Op({.op = op, .operands = {x}, .dtype = x.dtype, .shape = x.shape});
}

HloValue HloBuilder::Binary(std::string_view op, const HloValue& a,
                            const HloValue& b) {
  return Op({.op = op, .operands = {a, b}, .dtype = a.dtype, .shape = a.shape});
}

HloValue HloBuilder::Add(const HloValue& a, const HloValue& b) {
  return Binary("add", a, b);
}
HloValue HloBuilder::Sub(const HloValue& a, const HloValue& b) {
  return Binary("subtract", a, b);
}
HloValue HloBuilder::Mul(const HloValue& a, const HloValue& b) {
  return Binary("multiply", a, b);
}
HloValue HloBuilder::Div(const HloValue& a, const HloValue& b) {
  return Binary("divide", a, b);
}

HloValue HloBuilder::Compare(std::string_view direction, const HloValue& a,
                             const HloValue& b) {
  return Op({.op = "compare",
             .operands = {a, b},
             .dtype = DType::kBool,
             .shape = a.shape,
             .attributes = fmt::format("comparison_direction = "
                                       "#stablehlo<comparison_direction {}>",
                                       direction)});
}

HloValue HloBuilder::Select(const HloValue& condition, const HloValue& a,
                            const HloValue& b) {
  return Op({.op = "select",
             .operands = {condition, a, b},
             .dtype = a.dtype,
             .shape = a.shape});
}

HloValue HloBuilder::Convert(const HloValue& x, DType dtype) {
  if (x.dtype == dtype) return x;
  const bool is_integer = dtype != DType::kBool && !graph::IsFloating(dtype);
  if (is_integer && x.dtype != DType::kBool) return ToInteger(x, dtype);
  if (dtype == DType::kBool) return Compare("NE", x, 0.0);
  return Op(
      {.op = "convert", .operands = {x}, .dtype = dtype, .shape = x.shape});
}

// XLA's conversion of a number that an integer type cannot hold depends on the
// device, so such numbers are replaced by a select.
HloValue HloBuilder::ToInteger(const HloValue& x, DType dtype) {
  HloValue converted =
      Op({.op = "convert", .operands = {x}, .dtype = dtype, .shape = x.shape});
  const double low = graph::RoundToDType(-kInfinity, dtype);
  const double high = graph::RoundToDType(kInfinity, dtype);
  const bool is_floating = graph::IsFloating(x.dtype);
  // any u8 fits, and any i32 into an i64
  if (!is_floating && DTypeSize(dtype) > DTypeSize(x.dtype)) return converted;
  converted = Select(Compare("GE", x, high), Like(high, converted), converted);
  converted = Select(Compare("LE", x, low), Like(low, converted), converted);
  if (!is_floating) return converted;
  return Select(Compare("NE", x, x), Like(0.0, converted), converted);
}

HloValue HloBuilder::Widen(const HloValue& x) {
  return x.dtype == DType::kBF16 ? Convert(x, DType::kF32) : x;
}

// --- constants ---

HloValue HloBuilder::Constant(TensorView value) {
  HloValue result{NewName(), value.dtype(), value.shape()};
  std::string elements;
  if (value.shape().num_elements() == 0) {
    // no elements: "dense<>"
  } else if (value.dtype() == DType::kBool) {
    // the bytes of bools are packed bits in MLIR
    std::vector<std::string_view> texts;
    for (const bool x : value.Span<bool>()) {
      texts.push_back(x ? "true" : "false");
    }
    const HloValue flat{result.name, value.dtype(),
                        Shape({value.shape().num_elements()})};
    text_ += fmt::format(
        "    {} = \"stablehlo.constant\"() <{{value = dense<[{}]> : {}}}> : () "
        "-> {}{}\n",
        flat.name, fmt::join(texts, ", "), TypeOf(flat), TypeOf(flat),
        location_);
    return Reshape(flat, value.shape());
  } else {
    elements = Hex(value.bytes());
  }
  text_ += fmt::format(
      "    {} = \"stablehlo.constant\"() <{{value = dense<{}> : {}}}> : () -> "
      "{}{}\n",
      result.name, elements, TypeOf(result), TypeOf(result), location_);
  return result;
}

HloValue HloBuilder::Fill(double value, DType dtype, const Shape& shape) {
  HloValue result{NewName(), dtype, shape};
  const std::string elements =
      shape.num_elements() == 0
          ? ""
          : Literal(graph::RoundToDType(value, dtype), dtype);
  text_ += fmt::format(
      "    {} = \"stablehlo.constant\"() <{{value = dense<{}> : {}}}> : () -> "
      "{}{}\n",
      result.name, elements, TypeOf(result), TypeOf(result), location_);
  return result;
}

HloValue HloBuilder::Iota(DType dtype, const Shape& shape, int axis) {
  return Op({.op = "iota",
             .operands = {},
             .dtype = dtype,
             .shape = shape,
             .attributes = fmt::format("iota_dimension = {} : i64", axis)});
}

HloValue HloBuilder::ReplicaId() {
  // the op's type differs from every DType
  const std::string id = NewName();
  HloValue result{NewName(), DType::kI32, Shape({})};
  text_ += fmt::format(
      "    {0} = \"stablehlo.replica_id\"() : () -> tensor<ui32>{2}\n"
      "    {1} = \"stablehlo.convert\"({0}) : (tensor<ui32>) -> "
      "tensor<i32>{2}\n",
      id, result.name, location_);
  return result;
}

// --- shapes ---

HloValue HloBuilder::Reshape(const HloValue& x, const Shape& shape) {
  if (x.shape == shape) return x;
  return Op(
      {.op = "reshape", .operands = {x}, .dtype = x.dtype, .shape = shape});
}

HloValue HloBuilder::Transpose(const HloValue& x, const Dims& permutation) {
  Dims dims;
  dims.reserve(permutation.size());
  for (const int64_t axis : permutation) {
    dims.push_back(x.shape[static_cast<int>(axis)]);
  }
  return Op(
      {.op = "transpose",
       .operands = {x},
       .dtype = x.dtype,
       .shape = Shape(std::span<const int64_t>(dims)),
       .attributes = fmt::format("permutation = {}", Array(permutation))});
}

HloValue HloBuilder::BroadcastInDim(const HloValue& x, const Shape& shape,
                                    const Dims& axes) {
  if (x.shape == shape && axes == AllAxes(shape.rank())) return x;
  return Op(
      {.op = "broadcast_in_dim",
       .operands = {x},
       .dtype = x.dtype,
       .shape = shape,
       .attributes = fmt::format("broadcast_dimensions = {}", Array(axes))});
}

HloValue HloBuilder::BroadcastTo(const HloValue& x, const Shape& shape) {
  Dims axes = AllAxes(x.shape.rank());
  for (int64_t& axis : axes) axis += shape.rank() - x.shape.rank();
  return BroadcastInDim(x, shape, axes);
}

HloValue HloBuilder::Slice(const HloValue& x, const Dims& begin,
                           const Dims& end) {
  Dims size;
  for (size_t i = 0; i < begin.size(); ++i) size.push_back(end[i] - begin[i]);
  return Op({.op = "slice",
             .operands = {x},
             .dtype = x.dtype,
             .shape = Shape(std::span<const int64_t>(size)),
             .attributes = fmt::format(
                 "start_indices = {}, limit_indices = {}, strides = {}",
                 Array(begin), Array(end), Array(Dims(begin.size(), 1)))});
}

HloValue HloBuilder::Pad(const HloValue& x, double value, const Dims& before,
                         const Dims& after, const Dims& between) {
  Dims dims;
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t dim = x.shape[static_cast<int>(i)];
    const int64_t inside = dim == 0 ? 0 : (dim - 1) * between[i];
    dims.push_back(before[i] + dim + inside + after[i]);
  }
  return Op(
      {.op = "pad",
       .operands = {x, Fill(value, x.dtype, Shape({}))},
       .dtype = x.dtype,
       .shape = Shape(std::span<const int64_t>(dims)),
       .attributes = fmt::format("edge_padding_low = {}, "
                                 "edge_padding_high = {}, "
                                 "interior_padding = {}",
                                 Array(before), Array(after), Array(between))});
}

HloValue HloBuilder::Concat(const std::vector<HloValue>& xs, int64_t axis) {
  if (xs.size() == 1) return xs[0];
  Dims dims(xs[0].shape.dims().begin(), xs[0].shape.dims().end());
  for (size_t i = 1; i < xs.size(); ++i) {
    dims[static_cast<size_t>(axis)] += xs[i].shape[static_cast<int>(axis)];
  }
  return Op({.op = "concatenate",
             .operands = xs,
             .dtype = xs[0].dtype,
             .shape = Shape(std::span<const int64_t>(dims)),
             .attributes = fmt::format("dimension = {} : i64", axis)});
}

// --- reductions ---

HloValue HloBuilder::Reduce(std::string_view op, double first,
                            const HloValue& x, const Dims& axes) {
  if (axes.empty()) return x;
  Dims kept;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    if (std::ranges::find(axes, axis) == axes.end()) {
      kept.push_back(x.shape[axis]);
    }
  }
  return Op({.op = "reduce",
             .operands = {x, Fill(first, x.dtype, Shape({}))},
             .dtype = x.dtype,
             .shape = Shape(std::span<const int64_t>(kept)),
             .attributes = fmt::format("dimensions = {}", Array(axes)),
             .regions = {{.op = op, .dtype = x.dtype}}});
}

}  // namespace replicant::exporting
