#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config/node.h"

namespace replicant::config {

// Collects all problems of a configuration, so that one run shows them all.
//
// A problem prints as
//
//   run.yaml:12:9: replay.capacity_items: 0 is outside [1, 1000000000]
//   --set replay.capacity_items=0: replay.capacity_items: 0 is outside ...
//
// Thread-safety: one thread at a time.
class Problems {
 public:
  // Adds a file and returns its number for Place::file.
  int AddFile(std::string name);
  // Adds a source without lines, a "--set a.b=c" option.
  int AddOption(std::string name);

  // `key` is the dotted path from the root of the file, or empty.
  void Add(const Place& place, std::string key, std::string message);

  bool empty() const { return problems_.empty(); }
  bool HasKey(std::string_view key) const;
  // "run.yaml:12:9", or "--set a.b=c".
  std::string Where(const Place& place) const;

  // Throws ConfigError if there are problems: one per line, ordered by place.
  void ThrowIfAny() const;

 private:
  struct Source {
    std::string name;
    bool has_lines;
  };
  struct Problem {
    Place place;
    std::string key;
    std::string message;
  };
  std::vector<Source> sources_;
  std::vector<Problem> problems_;
};

// The text between single quotes for a message: control characters as \x1b, and
// "..." after 80 bytes.
std::string Quote(std::string_view text);
// The same without quotes.
std::string Printable(std::string_view text);

}  // namespace replicant::config
