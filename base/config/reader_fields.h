#pragma once

// The templates of Reader: each converts a field's C++ type to Scalars and
// back. Only base/config/reader.h includes it.

#include <algorithm>

#include "base/check.h"
#include "base/config/reader.h"

namespace replicant::config {
namespace internal {

template <typename T>
Scalar ToScalar(const T& value, const Names<T>& names) {
  if constexpr (NamedType<T>) {
    for (const auto& [name, named_value] : names) {
      if (named_value == value) return std::string(name);
    }
    // a value without a name is not an allowed default
    return std::string();
  } else if constexpr (std::is_same_v<T, int>) {
    return static_cast<int64_t>(value);
  } else {
    return value;
  }
}

template <typename T>
T FromScalar(const Scalar& scalar, const Names<T>& names) {
  if constexpr (NamedType<T>) {
    const auto& name = std::get<std::string>(scalar);
    const auto found = std::find_if(
        names.begin(), names.end(),
        [&name](const auto& named) { return named.first == name; });
    REPLICANT_CHECK(found != names.end(), "no value is called {}", name);
    return found->second;
  } else if constexpr (std::is_same_v<T, int>) {
    return static_cast<int>(std::get<int64_t>(scalar));
  } else {
    return std::get<T>(scalar);
  }
}

}  // namespace internal

template <NumberType T>
ScalarType Reader::TypeOf(Range<T> range) {
  ScalarType type;
  if constexpr (std::is_same_v<T, double>) {
    type.kind = ScalarType::Kind::kNumber;
    type.numbers = range;
  } else {
    type.kind = ScalarType::Kind::kInteger;
    type.integers = {range.min, range.max};
  }
  return type;
}

template <PlainType T>
ScalarType Reader::TypeOf() {
  ScalarType type;
  type.kind = std::is_same_v<T, bool> ? ScalarType::Kind::kBool
                                      : ScalarType::Kind::kText;
  return type;
}

template <NamedType E>
ScalarType Reader::TypeOf(const Names<E>& names) {
  ScalarType type;
  type.kind = ScalarType::Kind::kName;
  for (const auto& [name, value] : names) type.names.emplace_back(name);
  return type;
}

template <typename T>
void Reader::ReadOne(std::string_view key, ScalarType type, T* value,
                     std::string_view doc, const Names<T>& names) {
  std::vector<Scalar> values{internal::ToScalar<T>(*value, names)};
  if (ReadField({key, std::move(type), Form::kOne, {1, 1}, doc}, &values)) {
    *value = internal::FromScalar<T>(values.front(), names);
  }
}

template <typename T>
void Reader::ReadOptional(std::string_view key, ScalarType type,
                          std::optional<T>* value, std::string_view doc,
                          const Names<T>& names) {
  std::vector<Scalar> values;
  if (*value) values.push_back(internal::ToScalar<T>(**value, names));
  if (ReadField({key, std::move(type), Form::kOptional, {0, 1}, doc},
                &values)) {
    value->reset();
    if (!values.empty()) {
      *value = internal::FromScalar<T>(values.front(), names);
    }
  }
}

template <typename T>
void Reader::ReadList(std::string_view key, ScalarType type,
                      std::vector<T>* value, Range<int64_t> length,
                      std::string_view doc, const Names<T>& names) {
  std::vector<Scalar> values;
  for (const auto& element : *value) {
    values.push_back(internal::ToScalar<T>(element, names));
  }
  if (ReadField({key, std::move(type), Form::kList, length, doc}, &values)) {
    value->clear();
    for (const Scalar& scalar : values) {
      value->push_back(internal::FromScalar<T>(scalar, names));
    }
  }
}

template <NumberType T>
void Reader::Field(std::string_view key, T* value,
                   std::type_identity_t<Range<T>> range, std::string_view doc) {
  ReadOne<T>(key, TypeOf<T>(range), value, doc);
}

template <PlainType T>
void Reader::Field(std::string_view key, T* value, std::string_view doc) {
  ReadOne<T>(key, TypeOf<T>(), value, doc);
}

template <NamedType E>
void Reader::Field(std::string_view key, E* value,
                   const std::type_identity_t<Names<E>>& names,
                   std::string_view doc) {
  ReadOne<E>(key, TypeOf<E>(names), value, doc, names);
}

template <NumberType T>
void Reader::Field(std::string_view key, std::optional<T>* value,
                   std::type_identity_t<Range<T>> range, std::string_view doc) {
  ReadOptional<T>(key, TypeOf<T>(range), value, doc);
}

template <PlainType T>
void Reader::Field(std::string_view key, std::optional<T>* value,
                   std::string_view doc) {
  ReadOptional<T>(key, TypeOf<T>(), value, doc);
}

template <NamedType E>
void Reader::Field(std::string_view key, std::optional<E>* value,
                   const std::type_identity_t<Names<E>>& names,
                   std::string_view doc) {
  ReadOptional<E>(key, TypeOf<E>(names), value, doc, names);
}

template <NumberType T>
void Reader::Field(std::string_view key, std::vector<T>* value,
                   std::type_identity_t<Range<T>> range, Range<int64_t> length,
                   std::string_view doc) {
  ReadList<T>(key, TypeOf<T>(range), value, length, doc);
}

template <PlainType T>
void Reader::Field(std::string_view key, std::vector<T>* value,
                   Range<int64_t> length, std::string_view doc) {
  ReadList<T>(key, TypeOf<T>(), value, length, doc);
}

template <NamedType E>
void Reader::Field(std::string_view key, std::vector<E>* value,
                   const std::type_identity_t<Names<E>>& names,
                   Range<int64_t> length, std::string_view doc) {
  ReadList<E>(key, TypeOf<E>(names), value, length, doc, names);
}

template <typename T>
void Reader::Section(std::string_view key, T* value, std::string_view doc) {
  Reader section = Section(key, doc);
  *value = T::Read(section);
}

template <typename T>
void Reader::Sections(std::string_view key, std::vector<T>* value,
                      Range<int64_t> size, std::string_view doc) {
  REPLICANT_CHECK(value->empty(), "{} has default elements", PathOf(key));
  for (auto& [name, element] :
       Elements(key, SectionRecord::Form::kList, size, doc)) {
    value->push_back(T::Read(element));
  }
}

template <typename T>
void Reader::Sections(std::string_view key, std::map<std::string, T>* value,
                      Range<int64_t> size, std::string_view doc) {
  REPLICANT_CHECK(value->empty(), "{} has default elements", PathOf(key));
  for (auto& [name, element] :
       Elements(key, SectionRecord::Form::kMap, size, doc)) {
    value->emplace(name, T::Read(element));
  }
}

}  // namespace replicant::config
