#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace replicant::config {

// Place of a value. `file` numbers the sources in the order in which they were
// opened (see Problems::AddFile); line and column count from 1, columns in
// bytes.
struct Place {
  int file = 0;
  int line = 1;
  int column = 1;

  bool operator==(const Place&) const = default;
  // The order in which problems are shown.
  bool operator<(const Place& other) const {
    return std::tie(file, line, column) <
           std::tie(other.file, other.line, other.column);
  }
};

// A YAML value with its place: a plain tree, aliases already expanded.
struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  Place place;
  // kScalar: its text, and whether it was quoted or a block ("12", |) and so
  // can only be text; kNull of an override: its word, which is the value of a
  // text key
  std::string text;
  bool is_quoted = false;
  // kList
  std::vector<Node> items;
  // kMap, in the order of the file, no key twice
  std::vector<Entry> entries;

  // The entry of `key`, or nullptr. O(entries).
  const Entry* Find(std::string_view key) const;
  Entry* Find(std::string_view key);
};

struct Node::Entry {
  std::string key;
  Place key_place;
  Node value;

  // The place to show for a problem with the value; the key's place if the
  // value is absent ("key:").
  Place value_place() const {
    return value.kind == Node::Kind::kNull ? key_place : value.place;
  }
};

inline const Node::Entry* Node::Find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

inline Node::Entry* Node::Find(std::string_view key) {
  for (Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

}  // namespace replicant::config
