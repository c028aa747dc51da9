#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/config/document.h"
#include "base/config/node.h"
#include "base/config/range.h"
#include "base/config/record.h"
#include "base/config/scalar.h"

namespace replicant::config {

// Values with names, for Field(): enum values, or constants known by their
// address.
template <typename E>
using Names = std::vector<std::pair<std::string_view, E>>;

template <typename T>
concept NumberType = std::is_same_v<T, int> || std::is_same_v<T, int64_t> ||
    std::is_same_v<T, double>;
template <typename T>
concept PlainType = std::is_same_v<T, bool> || std::is_same_v<T, std::string>;
template <typename T>
concept NamedType = std::is_enum_v<T> || std::is_pointer_v<T>;

// Reads a configuration into structs and collects every problem, so that one
// run reports them all. A struct declares each of its keys once, in Read():
//
//   struct RateLimiterConfig {
//     double samples_per_insert = 32.0;
//     int64_t min_size_to_sample = 1000;  // items
//     static RateLimiterConfig Read(config::Reader& reader);
//   };
//
//   RateLimiterConfig RateLimiterConfig::Read(config::Reader& reader) {
//     RateLimiterConfig c;
//     reader.Field("samples_per_insert", &c.samples_per_insert, {1e-3, 1e4},
//                  "mean number of times one item is sampled in its life");
//     reader.Field("min_size_to_sample", &c.min_size_to_sample, {1, 1'000'000},
//                  "items the table must hold before the first sample");
//     return c;
//   }
//
// The same calls parse the values, define the keys (any other key is a
// problem), print the manual and write the values back (base/config/load.h).
// Read() must therefore make the same calls in the same order for all values;
// only calls of Error() may depend on them. A field keeps its default (its
// value before the call) if its key is absent or has a problem. A default
// outside its own range, a key declared twice, and a key that is not [a-z0-9_]+
// are bugs.
//
// A Reader is a handle of one section; it must not outlive the root's Reader.
// Thread-safety: one thread at a time.
class Reader {
 public:
  // The root of a configuration.
  explicit Reader(Document document);
  // The root of a manual: an empty configuration in which each list or map of
  // sections has one element, called "N" or "NAME", to show its keys.
  static Reader ForManual();

  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) = delete;
  ~Reader();

  // --- one value ---

  // int, int64_t or double within a range.
  template <NumberType T>
  void Field(std::string_view key, T* value,
             std::type_identity_t<Range<T>> range, std::string_view doc);
  // bool or std::string.
  template <PlainType T>
  void Field(std::string_view key, T* value, std::string_view doc);
  // An enum or a constant, by the name of its value.
  template <NamedType E>
  void Field(std::string_view key, E* value,
             const std::type_identity_t<Names<E>>& names, std::string_view doc);

  // --- a value or none: "key: null" is std::nullopt ---

  template <NumberType T>
  void Field(std::string_view key, std::optional<T>* value,
             std::type_identity_t<Range<T>> range, std::string_view doc);
  template <PlainType T>
  void Field(std::string_view key, std::optional<T>* value,
             std::string_view doc);
  template <NamedType E>
  void Field(std::string_view key, std::optional<E>* value,
             const std::type_identity_t<Names<E>>& names, std::string_view doc);

  // --- a list of values; `length` is the allowed number of elements ---

  template <NumberType T>
  void Field(std::string_view key, std::vector<T>* value,
             std::type_identity_t<Range<T>> range, Range<int64_t> length,
             std::string_view doc);
  template <PlainType T>
  void Field(std::string_view key, std::vector<T>* value, Range<int64_t> length,
             std::string_view doc);
  template <NamedType E>
  void Field(std::string_view key, std::vector<E>* value,
             const std::type_identity_t<Names<E>>& names, Range<int64_t> length,
             std::string_view doc);

  // --- sections ---

  // A section within this one.
  Reader Section(std::string_view key, std::string_view doc);
  // The same, read into a struct.
  template <typename T>
  void Section(std::string_view key, T* value, std::string_view doc);
  // A list of sections, or a map of sections by name ([A-Za-z0-9_-]+). Both are
  // empty by default (checked); `size` is the allowed number of elements.
  template <typename T>
  void Sections(std::string_view key, std::vector<T>* value,
                Range<int64_t> size, std::string_view doc);
  template <typename T>
  void Sections(std::string_view key, std::map<std::string, T>* value,
                Range<int64_t> size, std::string_view doc);

  // --- rules ---

  // Whether the configuration holds this key of this section.
  bool Has(std::string_view key) const;
  // Records a broken rule about several keys. The message names `key`, which
  // may be dotted ("rate_limiter.error_buffer"). A key that has another problem
  // hides the rule.
  void Error(std::string_view key, std::string message);

  // Call it at the root (checked) after all fields are read. Adds unknown keys
  // to the problems. If there are problems, throws ConfigError with one a line,
  // ordered by place: "file:line:column: dotted.key: message".
  void Finish();

  // The declarations made through this Reader.
  const SectionRecord& record() const { return *record_; }

 private:
  struct State;
  // Number of values of a field.
  enum class Form { kOne, kOptional, kList };
  struct Declaration {
    std::string_view key;
    ScalarType type;
    Form form;
    Range<int64_t> length;
    std::string_view doc;
  };

  Reader(State* state, SectionRecord* record, const Node* node, Place place);

  template <NumberType T>
  static ScalarType TypeOf(Range<T> range);
  template <PlainType T>
  static ScalarType TypeOf();
  template <NamedType E>
  static ScalarType TypeOf(const Names<E>& names);
  template <typename T>
  void ReadOne(std::string_view key, ScalarType type, T* value,
               std::string_view doc, const Names<T>& names = {});
  template <typename T>
  void ReadOptional(std::string_view key, ScalarType type,
                    std::optional<T>* value, std::string_view doc,
                    const Names<T>& names = {});
  template <typename T>
  void ReadList(std::string_view key, ScalarType type, std::vector<T>* value,
                Range<int64_t> length, std::string_view doc,
                const Names<T>& names = {});

  // Declares a field and reads it: replaces `*values`, which holds the default,
  // and returns true if the configuration has a good value.
  bool ReadField(const Declaration& declaration, std::vector<Scalar>* values);
  bool ParseField(const Declaration& declaration, std::vector<Scalar>* values);
  bool ParseElement(const Node& node, const Place& place,
                    const std::string& path, const Declaration& declaration,
                    std::vector<Scalar>* values);

  // Declares a list or map of sections and returns a Reader for each element,
  // with its name.
  std::vector<std::pair<std::string, Reader>> Elements(std::string_view key,
                                                       SectionRecord::Form form,
                                                       Range<int64_t> size,
                                                       std::string_view doc);

  SectionRecord* AddSection(std::string_view key, SectionRecord::Form form,
                            std::string_view doc);
  void CheckNewKey(std::string_view key) const;
  std::string PathOf(std::string_view key) const;
  const Node::Entry* Find(std::string_view key) const;

  // owned by the root only
  std::unique_ptr<State> owned_;
  State* state_;
  SectionRecord* record_;
  // the section's map, or nullptr if the configuration has none
  const Node* node_;
  // place of a problem of the whole section
  Place place_;
};

}  // namespace replicant::config

// The templates above.
#include "base/config/reader_fields.h"
