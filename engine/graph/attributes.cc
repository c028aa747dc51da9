#include "engine/graph/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace replicant::graph {
namespace {

struct ValuePrinter {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return fmt::to_string(value); }
  std::string operator()(double value) const { return fmt::to_string(value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<int64_t>& value) const {
    return fmt::format("[{}]", fmt::join(value, ","));
  }
  std::string operator()(const std::vector<double>& value) const {
    return fmt::format("[{}]", fmt::join(value, ","));
  }
  std::string operator()(const ScalarProgram& value) const {
    return fmt::format("{{{}}}", value.ToString());
  }
};

template <typename T>
const T& Get(const AttributeValue* value, std::string_view name) {
  REPLICANT_CHECK(value != nullptr, "no attribute '{}'", name);
  const T* typed = std::get_if<T>(value);
  REPLICANT_CHECK(typed != nullptr, "attribute '{}' has another type", name);
  return *typed;
}

}  // namespace

Attributes::Attributes(std::initializer_list<Entry> entries) {
  for (const auto& [name, value] : entries) Set(name, value);
}

const AttributeValue* Attributes::Find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Attributes::Has(std::string_view name) const {
  return Find(name) != nullptr;
}

bool Attributes::Bool(std::string_view name) const {
  return Get<bool>(Find(name), name);
}

int64_t Attributes::Int(std::string_view name) const {
  return Get<int64_t>(Find(name), name);
}

double Attributes::Float(std::string_view name) const {
  return Get<double>(Find(name), name);
}

const std::string& Attributes::Text(std::string_view name) const {
  return Get<std::string>(Find(name), name);
}

const std::vector<int64_t>& Attributes::Ints(std::string_view name) const {
  return Get<std::vector<int64_t>>(Find(name), name);
}

const std::vector<double>& Attributes::Floats(std::string_view name) const {
  return Get<std::vector<double>>(Find(name), name);
}

const ScalarProgram& Attributes::Program(std::string_view name) const {
  return Get<ScalarProgram>(Find(name), name);
}

void Attributes::Set(std::string_view name, AttributeValue value) {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view key) {
                         return entry.first < key;
                       });
  if (place != entries_.end() && place->first == name) {
    place->second = std::move(value);
  } else {
    entries_.emplace(place, std::string(name), std::move(value));
  }
}

std::string Attributes::ToString() const {
  std::string text;
  for (const auto& [name, value] : entries_) {
    if (!text.empty()) text += ' ';
    text += name + '=' + std::visit(ValuePrinter{}, value);
  }
  return text;
}

}  // namespace replicant::graph
