#include "base/tensor/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"

namespace replicant {
namespace {

// numpy's name of a type without the byte order: kind and size in bytes.
struct NpyType {
  std::string_view name;
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {{"f4", DType::kF32}, {"f8", DType::kF64},
                                 {"u1", DType::kU8},  {"i4", DType::kI32},
                                 {"i8", DType::kI64}, {"b1", DType::kBool}};

class Parser {
 public:
  Parser(std::string_view text, const std::string& where)
      : text_(text), where_(where) {}

  NpyHeader Parse() {
    Expect('{');
    while (!TryTake('}')) {
      ParseEntry();
      if (!TryTake(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    if (position_ != text_.size()) Fail("expected nothing after the dict");
    if (!has_descr_) Fail("the key 'descr' is missing");
    if (!has_fortran_order_) Fail("the key 'fortran_order' is missing");
    if (!has_shape_) Fail("the key 'shape' is missing");
    return header_;
  }

 private:
  void ParseEntry() {
    const std::string_view key = ParseString();
    Expect(':');
    if (key == "descr") {
      SetOnce(has_descr_, key);
      ParseDescr();
    } else if (key == "fortran_order") {
      SetOnce(has_fortran_order_, key);
      header_.is_fortran_order = ParseBool();
    } else if (key == "shape") {
      SetOnce(has_shape_, key);
      header_.shape = ParseShape();
    } else {
      Fail(fmt::format("unknown key '{}'; allowed: descr, fortran_order, shape",
                       key));
    }
  }

  void SetOnce(bool& is_set, std::string_view key) {
    if (is_set) Fail(fmt::format("second key '{}'", key));
    is_set = true;
  }

  void ParseDescr() {
    SkipSpace();
    const char c = Peek();
    if (c == '[' || c == '(') {
      Fail(
          "structured dtypes are not supported; hint: save each field as an "
          "array of its own");
    }
    std::string_view descr = ParseString();
    const std::string_view whole = descr;
    char order = '|';
    if (!descr.empty() &&
        std::string_view("<>|=").find(descr[0]) != std::string_view::npos) {
      order = descr[0];
      descr.remove_prefix(1);
    }
    if (!descr.empty() && descr[0] == 'O') {
      Fail(
          "object arrays are pickles, which may run code and are never read; "
          "hint: save a numeric array");
    }
    for (const NpyType& type : kNpyTypes) {
      if (descr != type.name) continue;
      header_.dtype = type.dtype;
      // single bytes have no order; other types must say theirs
      if (DTypeSize(type.dtype) > 1 && order == '|') break;
      header_.is_big_endian = order == '>';
      return;
    }
    Fail(
        fmt::format("dtype '{}' is not supported; allowed: <f4, <f8, |u1, "
                    "<i4, <i8, |b1, and '>' in place of '<'; hint: convert "
                    "with astype()",
                    whole));
  }

  bool ParseBool() {
    SkipSpace();
    if (TryTakeWord("True")) return true;
    if (TryTakeWord("False")) return false;
    Fail("expected True or False");
  }

  // "()", "(3,)", "(3, 51)" or "(3, 51,)"; "(3)" is no tuple.
  Shape ParseShape() {
    std::array<int64_t, Shape::kMaxRank> dims{};
    size_t rank = 0;
    Expect('(');
    while (!TryTake(')')) {
      const int64_t dim = ParseWhole();
      if (rank == dims.size()) {
        Fail(fmt::format("more than {} dimensions; at most {} are allowed",
                         dims.size(), dims.size()));
      }
      dims[rank++] = dim;
      if (TryTake(',')) continue;
      if (rank == 1) Fail("expected ','");
      Expect(')');
      break;
    }
    try {
      return Shape(std::span(dims).first(rank));
    } catch (const ShapeError& e) {
      Fail(e.what());
    }
  }

  int64_t ParseWhole() {
    SkipSpace();
    // digits only: from_chars alone would take a sign
    const size_t end = std::min(
        text_.find_first_not_of("0123456789", position_), text_.size());
    if (end == position_) Fail("expected a whole number");
    int64_t value = 0;
    const auto result =
        std::from_chars(text_.data() + position_, text_.data() + end, value);
    if (result.ec != std::errc()) Fail("the number does not fit 64 bits");
    position_ = end;
    return value;
  }

  // A literal in single or double quotes, without escapes.
  std::string_view ParseString() {
    SkipSpace();
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Fail("expected a string");
    const size_t begin = position_ + 1;
    const size_t end = text_.find_first_of("'\"\\\n", begin);
    if (end == std::string_view::npos || text_[end] != quote) {
      Fail("the string has no plain end");
    }
    position_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  void SkipSpace() {
    while (Peek() == ' ' || Peek() == '\n') ++position_;
  }
  // NUL at the end, which no token starts with.
  char Peek() const {
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool TryTake(char c) {
    SkipSpace();
    if (Peek() != c) return false;
    ++position_;
    return true;
  }
  bool TryTakeWord(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }
  void Expect(char c) {
    if (!TryTake(c)) Fail(fmt::format("expected '{}'", c));
  }
  [[noreturn]] void Fail(std::string_view problem) const {
    throw IoError(fmt::format("{}: npy header, column {}: {}", where_,
                              position_ + 1, problem));
  }

  const std::string_view text_;
  const std::string& where_;
  size_t position_ = 0;
  NpyHeader header_;
  bool has_descr_ = false;
  bool has_fortran_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

NpyHeader ParseNpyHeader(std::string_view text, const std::string& where) {
  return Parser(text, where).Parse();
}

std::string FormatNpyHeader(DType dtype, const Shape& shape) {
  std::string_view type;
  for (const NpyType& candidate : kNpyTypes) {
    if (candidate.dtype == dtype) type = candidate.name;
  }
  if (type.empty()) {
    throw InvalidArgument(
        fmt::format("npy: numpy has no dtype {}; hint: convert to f32, or "
                    "write safetensors",
                    DTypeName(dtype)));
  }
  // a tuple of one needs its comma
  return fmt::format(
      "{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
      DTypeSize(dtype) > 1 ? '<' : '|', type, fmt::join(shape.dims(), ", "),
      shape.rank() == 1 ? "," : "");
}

}  // namespace replicant
