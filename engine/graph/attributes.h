#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/graph/scalar_program.h"

namespace replicant::graph {

using AttributeValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, ScalarProgram>;

// The compile-time arguments of a node (strides, axes, epsilon), by name.
//
// A value type. Equality lets the common-subexpression pass find two nodes that
// compute the same. Asking for a name that is absent or has another type is a
// bug (checked).
class Attributes {
 public:
  using Entry = std::pair<std::string, AttributeValue>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries);

  bool Has(std::string_view name) const;
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  const std::string& Text(std::string_view name) const;
  const std::vector<int64_t>& Ints(std::string_view name) const;
  const std::vector<double>& Floats(std::string_view name) const;
  const ScalarProgram& Program(std::string_view name) const;

  // Adds the entry or replaces its value.
  void Set(std::string_view name, AttributeValue value);

  // "axes=[0,1] keep_dims=true", sorted by name; "" if there are none.
  std::string ToString() const;

  bool operator==(const Attributes&) const = default;

 private:
  const AttributeValue* Find(std::string_view name) const;

  // sorted by name, without repetition
  std::vector<Entry> entries_;
};

}  // namespace replicant::graph
