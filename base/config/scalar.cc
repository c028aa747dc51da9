#include "base/config/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/config/problems.h"
#include "base/nearest.h"

namespace replicant::config {
namespace {

using Kind = ScalarType::Kind;

ParsedScalar Good(Scalar value) { return {std::move(value), "", ""}; }

ParsedScalar Bad(std::string problem, std::string hint = "") {
  return {std::nullopt, std::move(problem), std::move(hint)};
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The words that YAML 1.1 reads as true and as false.
bool IsTrueWord(std::string_view text) {
  const std::string word = Lower(text);
  return word == "true" || word == "yes" || word == "on" || word == "y";
}
bool IsFalseWord(std::string_view text) {
  const std::string word = Lower(text);
  return word == "false" || word == "no" || word == "off" || word == "n";
}

// A decimal number in its parts: (-1)^is_negative * digits * 10^exponent.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int exponent = 0;
};

// Splits [+-] digits [. digits] [e [+-] digits]; std::nullopt for other text.
std::optional<Decimal> SplitDecimal(std::string_view text) {
  Decimal decimal;
  size_t i = 0;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) {
    decimal.is_negative = text[i++] == '-';
  }
  for (; i < text.size() && IsDigit(text[i]); ++i) decimal.digits += text[i];
  if (i < text.size() && text[i] == '.') {
    for (++i; i < text.size() && IsDigit(text[i]); ++i) {
      decimal.digits += text[i];
      --decimal.exponent;
    }
  }
  if (decimal.digits.empty()) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const bool has_sign =
        i + 1 < text.size() && (text[i + 1] == '+' || text[i + 1] == '-');
    const bool is_negative = has_sign && text[i + 1] == '-';
    i += has_sign ? 2 : 1;
    if (i == text.size()) return std::nullopt;
    int exponent = 0;
    for (; i < text.size() && IsDigit(text[i]); ++i) {
      // a longer one changes nothing: the number is 0, too large or too small
      if (exponent < 1'000'000) exponent = 10 * exponent + (text[i] - '0');
    }
    decimal.exponent += is_negative ? -exponent : exponent;
  }
  if (i != text.size()) return std::nullopt;
  return decimal;
}

// "010" is eight in YAML 1.1 and ten in YAML 1.2.
bool HasLeadingZero(std::string_view text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-'))
    text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && IsDigit(text[1]);
}

// A unit after a number, and the factor that it stands for.
struct Unit {
  std::string_view name;  // lower case
  double factor;
  std::string_view of;  // the unit of a key that counts such things
};
constexpr Unit kUnits[] = {
    {"k", 1e3, ""},
    {"m", 1e6, ""},
    {"g", 1e9, ""},
    {"t", 1e12, ""},
    {"kb", 1e3, " (bytes)"},
    {"mb", 1e6, " (bytes)"},
    {"gb", 1e9, " (bytes)"},
    {"tb", 1e12, " (bytes)"},
    {"kib", 1024.0, " (bytes)"},
    {"mib", 1048576.0, " (bytes)"},
    {"gib", 1073741824.0, " (bytes)"},
    {"tib", 1099511627776.0, " (bytes)"},
    {"ms", 1e-3, " (seconds)"},
    {"s", 1.0, " (seconds)"},
    {"sec", 1.0, " (seconds)"},
    {"min", 60.0, " (seconds)"},
    {"h", 3600.0, " (seconds)"},
    {"d", 86400.0, " (seconds)"},
};

// "4GB" is 4e9, "10min" is 600; empty for a text without a known unit.
std::string UnitHint(std::string_view text) {
  const size_t end = text.find_last_of("0123456789.") + 1;
  if (end == 0 || end == text.size()) return "";
  const std::string_view number = text.substr(0, end);
  const size_t begin = text.find_first_not_of(' ', end);
  if (begin == std::string_view::npos) return "";
  const std::string name = Lower(text.substr(begin));
  const auto* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == std::end(kUnits) || !SplitDecimal(number)) return "";
  double value = 0.0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  value *= unit->factor;
  std::string written = fmt::format("{}", value);
  // people miscount the zeros of 4000000000
  const size_t zeros = written.size() - 1 - written.find_last_not_of('0');
  if (zeros >= 6) {
    const size_t exponent = zeros / 3 * 3;
    written.resize(written.size() - exponent);
    written += fmt::format("e{}", exponent);
  }
  return fmt::format("; hint: write {}{}", written, unit->of);
}

// Why `text` is not a valid number here, or a hint how to write it.
std::string NumberHint(std::string_view text) {
  if (HasLeadingZero(text)) {
    return "; hint: a leading 0 means octal to some readers, leave it out";
  }
  std::string without(text);
  std::erase(without, '_');
  if (without != text && SplitDecimal(without)) {
    return "; hint: write " + without;
  }
  const std::string word = Lower(text);
  if (word == "inf" || word == "+inf" || word == "-inf") {
    return word[0] == '-' ? "; hint: write -.inf" : "; hint: write .inf";
  }
  if (word.starts_with("0x") || word.starts_with("0o") ||
      word.starts_with("0b")) {
    return "; hint: write it in decimal";
  }
  return UnitHint(text);
}

// "cannot read 'ten' as a whole number in [1, 64]".
ParsedScalar Unreadable(const Node& node, const ScalarType& type,
                        const std::string& hint) {
  return Bad(
      fmt::format("cannot read {} as {}", DescribeNode(node), type.Wanted()),
      hint);
}

ParsedScalar ParseBool(const Node& node, const ScalarType& type) {
  if (node.text == "true") return Good(true);
  if (node.text == "false") return Good(false);
  std::string hint;
  if (IsTrueWord(node.text)) hint = "; hint: write true";
  if (IsFalseWord(node.text)) hint = "; hint: write false";
  return Unreadable(node, type, hint);
}

ParsedScalar OutsideRange(const Node& node, const ScalarType& type) {
  return Bad(
      fmt::format("{} is outside {}", Printable(node.text), type.Allowed()));
}

// The exact value of a decimal as an int64.
enum class WholeResult { kOk, kFraction, kOverflow };
WholeResult ToWhole(const Decimal& decimal, int64_t* value) {
  std::string digits = decimal.digits;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  int exponent = decimal.exponent;
  for (; exponent < 0 && !digits.empty(); ++exponent) {
    if (digits.back() != '0') return WholeResult::kFraction;
    digits.pop_back();
  }
  // 19 digits hold every int64, and a uint64 holds every 19 digits
  if (digits.empty()) {
    *value = 0;
    return WholeResult::kOk;
  }
  if (exponent > 19 || digits.size() + static_cast<size_t>(exponent) > 19) {
    return WholeResult::kOverflow;
  }
  digits.append(static_cast<size_t>(exponent), '0');
  uint64_t magnitude = 0;
  for (const char c : digits) {
    magnitude = 10 * magnitude + static_cast<uint64_t>(c - '0');
  }
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (magnitude > kMax + (decimal.is_negative ? 1 : 0)) {
    return WholeResult::kOverflow;
  }
  *value =
      static_cast<int64_t>(decimal.is_negative ? 0 - magnitude : magnitude);
  return WholeResult::kOk;
}

ParsedScalar ParseInteger(const Node& node, const ScalarType& type) {
  const std::optional<Decimal> decimal = SplitDecimal(node.text);
  if (!decimal || HasLeadingZero(node.text)) {
    return Unreadable(node, type, NumberHint(node.text));
  }
  int64_t value = 0;
  switch (ToWhole(*decimal, &value)) {
    case WholeResult::kFraction:
      return Unreadable(node, type, "");
    case WholeResult::kOverflow:
      return Bad(fmt::format("{} does not fit into 64 bits; expected {}",
                             Printable(node.text), type.Wanted()));
    case WholeResult::kOk:
      break;
  }
  if (!type.integers.Contains(value)) return OutsideRange(node, type);
  return Good(value);
}

ParsedScalar ParseNumber(const Node& node, const ScalarType& type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double value = 0.0;
  if (node.text == ".inf" || node.text == "+.inf") {
    value = kInfinity;
  } else if (node.text == "-.inf") {
    value = -kInfinity;
  } else {
    if (!SplitDecimal(node.text) || HasLeadingZero(node.text)) {
      return Unreadable(node, type, NumberHint(node.text));
    }
    // from_chars knows no plus sign
    const char* begin = node.text.data() + (node.text[0] == '+' ? 1 : 0);
    const char* end = node.text.data() + node.text.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error == std::errc::result_out_of_range) {
      return Bad(
          fmt::format("{} is too large or too small for a double; expected {}",
                      Printable(node.text), type.Wanted()));
    }
    REPLICANT_CHECK(error == std::errc() && stop == end, "from_chars of {}",
                    Quote(node.text));
  }
  if (!type.numbers.Contains(value)) return OutsideRange(node, type);
  return Good(value);
}

ParsedScalar ParseName(const Node& node, const ScalarType& type) {
  if (std::find(type.names.begin(), type.names.end(), node.text) !=
      type.names.end()) {
    return Good(node.text);
  }
  const std::string nearest = NearestName(node.text, type.names);
  return Bad(
      fmt::format("{} is not one of {}", DescribeNode(node), type.Allowed()),
      nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

// Doubles in the shortest form that reads back, and with a mark of a double.
std::string NumberToYaml(double value) {
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Whether every YAML reader reads the unquoted text as text.
bool IsPlainText(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (text.empty() || !(is_letter(text[0]) || text[0] == '/')) return false;
  for (const char c : text) {
    if (!is_letter(c) && !IsDigit(c) && c != '/' && c != '.' && c != '-') {
      return false;
    }
  }
  constexpr std::array<std::string_view, 3> kOtherWords = {"null", "inf",
                                                           "nan"};
  const std::string word = Lower(text);
  return !IsTrueWord(text) && !IsFalseWord(text) &&
         std::find(kOtherWords.begin(), kOtherWords.end(), word) ==
             kOtherWords.end();
}

template <typename T>
std::string RangeText(const Range<T>& range, bool has_min, bool has_max,
                      std::string (*text)(T)) {
  if (has_min && has_max) {
    return fmt::format("[{}, {}]", text(range.min), text(range.max));
  }
  if (has_min) return fmt::format(">= {}", text(range.min));
  if (has_max) return fmt::format("<= {}", text(range.max));
  return "";
}

}  // namespace

std::string ToString(const Range<int64_t>& range) {
  using Limits = std::numeric_limits<int64_t>;
  return RangeText<int64_t>(
      range, range.min != Limits::min(), range.max != Limits::max(),
      +[](int64_t value) { return std::to_string(value); });
}

std::string ToString(const Range<double>& range) {
  return RangeText<double>(
      range, !std::isinf(range.min), !std::isinf(range.max),
      +[](double value) { return fmt::format("{}", value); });
}

std::string ScalarType::Name() const {
  switch (kind) {
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "integer";
    case Kind::kNumber:
      return "number";
    case Kind::kText:
      return "text";
    case Kind::kName:
      return "name";
  }
  REPLICANT_CHECK(false, "kind {}", static_cast<int>(kind));
}

std::string ScalarType::Allowed() const {
  switch (kind) {
    case Kind::kBool:
      return "true, false";
    case Kind::kInteger:
      return ToString(integers);
    case Kind::kNumber:
      return ToString(numbers);
    case Kind::kText:
      return "";
    case Kind::kName:
      return fmt::format("{}", fmt::join(names, ", "));
  }
  REPLICANT_CHECK(false, "kind {}", static_cast<int>(kind));
}

std::string ScalarType::Wanted() const {
  const std::string allowed = Allowed();
  const std::string in_range = allowed.empty()     ? ""
                               : allowed[0] == '[' ? " in " + allowed
                                                   : " " + allowed;
  switch (kind) {
    case Kind::kBool:
      return "true or false";
    case Kind::kInteger:
      return "a whole number" + in_range;
    case Kind::kNumber:
      return "a number" + in_range;
    case Kind::kText:
      return "text";
    case Kind::kName:
      return "one of " + allowed;
  }
  REPLICANT_CHECK(false, "kind {}", static_cast<int>(kind));
}

bool ScalarType::Allows(const Scalar& value) const {
  switch (kind) {
    case Kind::kBool:
      return std::holds_alternative<bool>(value);
    case Kind::kInteger:
      return std::holds_alternative<int64_t>(value) &&
             integers.Contains(std::get<int64_t>(value));
    case Kind::kNumber:
      return std::holds_alternative<double>(value) &&
             numbers.Contains(std::get<double>(value));
    case Kind::kText:
      return std::holds_alternative<std::string>(value);
    case Kind::kName:
      return std::holds_alternative<std::string>(value) &&
             std::find(names.begin(), names.end(),
                       std::get<std::string>(value)) != names.end();
  }
  return false;
}

std::string DescribeNode(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "no value";
    case Node::Kind::kScalar:
      return Quote(node.text);
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
  }
  return "";
}

ParsedScalar ParseScalar(const Node& node, const ScalarType& type) {
  // "--set run.dir=null" is about a folder with this name
  const bool is_word = node.kind == Node::Kind::kNull && !node.text.empty();
  if (is_word && type.kind == Kind::kText) return Good(node.text);
  if (node.kind == Node::Kind::kNull) {
    return Bad("has no value; expected " + type.Wanted(),
               type.kind == Kind::kText
                   ? "; hint: write \"\" for empty text"
                   : "; hint: leave the key out for its default");
  }
  if (node.kind != Node::Kind::kScalar) {
    return Bad("is " + DescribeNode(node) + "; expected " + type.Wanted());
  }
  if (type.kind == Kind::kText) return Good(node.text);
  if (type.kind == Kind::kName) return ParseName(node, type);
  if (node.is_quoted) {
    Node bare = node;
    bare.is_quoted = false;
    const ParsedScalar parsed = ParseScalar(bare, type);
    return Bad(fmt::format("{} is quoted and so is text; expected {}",
                           Quote(node.text), type.Wanted()),
               parsed.value ? "; hint: remove the quotes" : parsed.hint);
  }
  if (type.kind == Kind::kBool) return ParseBool(node, type);
  if (type.kind == Kind::kInteger) return ParseInteger(node, type);
  return ParseNumber(node, type);
}

std::string TextToYaml(std::string_view text) {
  return IsPlainText(text) ? std::string(text) : QuotedToYaml(text);
}

std::string QuotedToYaml(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out + "\"";
}

std::string ToYaml(const Scalar& value) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    return *flag ? "true" : "false";
  }
  if (const int64_t* integer = std::get_if<int64_t>(&value)) {
    return std::to_string(*integer);
  }
  if (const double* number = std::get_if<double>(&value)) {
    return NumberToYaml(*number);
  }
  return TextToYaml(std::get<std::string>(value));
}

}  // namespace replicant::config
