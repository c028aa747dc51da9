#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/config/node.h"
#include "base/config/range.h"

namespace replicant::config {

// One value of a field. A value of an enum is held by its name.
using Scalar = std::variant<bool, int64_t, double, std::string>;

// The allowed values of a field.
struct ScalarType {
  enum class Kind { kBool, kInteger, kNumber, kText, kName };

  Kind kind = Kind::kBool;
  Range<int64_t> integers{INT64_MIN, INT64_MAX};  // kInteger
  Range<double> numbers{0.0, 0.0};                // kNumber
  std::vector<std::string> names;                 // kName

  // "bool", "integer", "number", "text", "name".
  std::string Name() const;
  // "[1, 64]", "true, false", "info, warning"; empty if all are allowed.
  std::string Allowed() const;
  // For messages: "a whole number in [1, 64]".
  std::string Wanted() const;
  bool Allows(const Scalar& value) const;
};

// Either a value or a problem.
struct ParsedScalar {
  std::optional<Scalar> value;
  std::string problem;
  // "; hint: ..." to follow the problem; may be empty
  std::string hint;
};

// Reads a value strictly by YAML 1.2's core schema and refuses forms that YAML
// 1.1 reads differently:
//
//   bool     true, false; not yes, no, on, off, True, 1
//   integer  decimal: 1000000, 1e6 or 2.5e3 if exactly whole and within
//            int64; not 010, 0x10, 1_000
//   number   decimal: 0.5, 1e-3, .5; .inf and -.inf where the range holds
//            them; never .nan, nor a number too large or too small for a double
//   text     any text, quoted or not
//   name     one of the type's names, quoted or not
//
// A quoted "12" is text, not a number. Lists, maps and null are refused.
ParsedScalar ParseScalar(const Node& node, const ScalarType& type);

// The value as YAML that ParseScalar() reads back to an equal value: numbers in
// the shortest form that reads back exactly, text quoted where some YAML reader
// would not read it as text.
std::string ToYaml(const Scalar& value);
// Any text as YAML, for keys too.
std::string TextToYaml(std::string_view text);
// The same, always in quotes.
std::string QuotedToYaml(std::string_view text);

// "no value", "a list", "a map" or the quoted text, for messages.
std::string DescribeNode(const Node& node);

// "[1, 64]", ">= 1", "<= 64", or empty if every value is allowed.
std::string ToString(const Range<int64_t>& range);
std::string ToString(const Range<double>& range);

}  // namespace replicant::config
