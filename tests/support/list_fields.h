#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/rpc/wire.h"

namespace replicant::testing {

// Lists the fields that a message declares (base/rpc/fields.h) as the message
// table of a protocol does.
class FieldLister {
 public:
  template <rpc::WireNumber T>
  void Number(std::string_view name, const T*, std::string_view note = "") {
    Add("{} {}{}", TypeName<T>(), name,
        note.empty() ? "" : fmt::format(" ({})", note));
  }
  void Bool(std::string_view name, const bool*) { Add("bool {}", name); }
  template <class E, size_t N>
  void Enum(std::string_view name, const E*,
            const std::string_view (&names)[N]) {
    AddEnum(name, names);
  }
  void String(std::string_view name, const std::string*, uint32_t) {
    Add("string {}", name);
  }
  void CutString(std::string_view name, const std::string*, uint32_t) {
    Add("string {}", name);
  }
  void Line(std::string_view name, const std::string*, uint32_t) {
    Add("string {}", name);
  }
  template <rpc::WireNumber T>
  void Array(std::string_view name, const std::vector<T>*, uint32_t) {
    Add("array of {} {}", TypeName<T>(), name);
  }
  template <class T, class F>
  void List(std::string_view name, std::vector<T>*, uint32_t, F each) {
    const std::string fields = std::exchange(text_, "");
    T value;
    each(value);
    AddList(name, fields);
  }
  template <class T>
  void List(std::string_view name, std::vector<T>* values, uint32_t max_count) {
    List(name, values, max_count, [this](T& value) { value.Fields(*this); });
  }
  template <class T>
  void Map(std::string_view name, std::map<std::string, T>*, uint32_t,
           uint32_t) {
    const std::string fields = std::exchange(text_, "string name");
    T().Fields(*this);
    AddList(name, fields);
  }
  template <class T>
  void Optional(std::string_view name, std::optional<T>*) {
    const std::string fields = std::exchange(text_, "");
    T().Fields(*this);
    const std::string own = std::exchange(text_, fields);
    Add("bool {} and, if so, {}", name, own);
  }
  template <class... A>
  void Check(bool, fmt::format_string<A...>, A&&...) {}

  const std::string& text() const { return text_; }

 private:
  // "u32".
  template <rpc::WireNumber T>
  static std::string TypeName() {
    const char kind = std::integral<T> ? std::is_signed_v<T> ? 'i' : 'u' : 'f';
    return fmt::format("{}{}", kind, 8 * sizeof(T));
  }
  template <class... A>
  void Add(fmt::format_string<A...> field, A&&... arguments) {
    if (!text_.empty()) text_ += ", ";
    text_ += fmt::format(field, std::forward<A>(arguments)...);
  }
  void AddEnum(std::string_view name, std::span<const std::string_view> names) {
    std::string values;
    for (size_t i = 0; i < names.size(); ++i) {
      values += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, names[i]);
    }
    Add("u8 {} ({})", name, values);
  }
  // Adds a list of the fields in text_ to the fields before it.
  void AddList(std::string_view name, const std::string& before) {
    const std::string fields = std::exchange(text_, before);
    const bool is_one = fields.find(", ") == std::string::npos;
    Add("u32 {}, {} x {}", name, name,
        is_one ? fields : fmt::format("({})", fields));
  }

  std::string text_;
};

// "u8 verdict (0 taken, 1 refused), u64 last, array of u64 dropped".
template <class M, class... A>
std::string ListFields(A*... others) {
  FieldLister lister;
  M().Fields(lister, others...);
  return lister.text();
}

}  // namespace replicant::testing
