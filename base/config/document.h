#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/node.h"
#include "base/config/problems.h"

namespace replicant::config {

// Reads a whole configuration file. Throws IoError.
using FileReader = std::function<std::string(const std::filesystem::path&)>;

// A configuration before it is read into structs: the file, its bases and the
// overrides of the command line, merged into one tree in which every value
// knows its place.
//
// The later of these wins: the files named by `base:`, in their order; the file
// itself; the overrides, in their order. Maps are merged key by key; scalars
// and lists replace the older value.
//
//   base: ../base.yaml            # or a list; relative to this file
//   replay: {capacity_items: 1e6} # other keys of replay are base.yaml's
//
// problems() holds the problems found on the way (duplicate keys, an override
// that cannot be applied), to be reported together with the problems of the
// values.
//
// Thread-safety: one thread at a time.
class Document {
 public:
  // At most this many files make one configuration.
  static constexpr int kMaxFiles = 32;

  // An empty configuration: every default.
  Document();

  // Reads a file and its bases. An override is "a.b=value". A value that begins
  // with [, {, " or ' is YAML ("sizes=[3, 4]"). Every other value is taken as
  // it stands, blanks, "#" and ": " included ("dir=runs/exp #1"); an empty one,
  // null and ~ are no value, which a text key reads as the words "null" and
  // "~". Throws ConfigError with every problem found so far if a file cannot be
  // read or is not YAML.
  static Document FromFile(const std::filesystem::path& path,
                           const std::vector<std::string>& overrides = {});
  // The same with files from `read_file` instead of the disk.
  static Document FromFile(const std::filesystem::path& path,
                           const std::vector<std::string>& overrides,
                           const FileReader& read_file);
  // Reads a text, called `name` in messages; it can have no base.
  static Document FromText(const std::string& name, std::string_view text,
                           const std::vector<std::string>& overrides = {});

  // A map.
  const Node& root() const { return root_; }
  Problems& problems() { return problems_; }
  const Problems& problems() const { return problems_; }

 private:
  Node root_;
  Problems problems_;
};

// The override "key=value" whose value reads back as exactly `text`, which must
// be UTF-8: `text` itself, in quotes where it would be read as something else.
std::string Setting(std::string_view key, std::string_view text);

}  // namespace replicant::config
