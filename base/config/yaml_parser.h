#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/config/node.h"
#include "base/config/problems.h"

namespace replicant::config {

// Limits of one file, so that no input exhausts the memory or the stack. They
// are above what programs write: the configuration of a run on 10,000 hosts,
// and the state of one with 100,000 roles.
struct YamlLimits {
  static constexpr int kDepth = 64;
  static constexpr size_t kFileBytes = size_t{16} << 20;
  // memory of the tree
  static constexpr size_t kTreeBytes = size_t{256} << 20;
  // memory of the values that aliases name, and of their copies
  static constexpr size_t kAliasBytes = size_t{4} << 20;
  static constexpr size_t kMapKeys = 100'000;
};

// Reads one YAML document into a tree. `file` is the text's number from
// Problems::AddFile.
//
// YAML features that a configuration does not need are problems: tags, keys
// that are not text, merge keys ("<<"), several documents, bytes that are not
// UTF-8, control characters, a key twice in one map (both places are shown). An
// empty text is an empty map. Adds a problem and returns std::nullopt if no
// tree can be made; a duplicate key adds a problem but still leaves a tree.
std::optional<Node> ParseYaml(const std::string& text, int file,
                              Problems* problems);

// Why `text` cannot be a plain value: bytes that are not UTF-8, or a control
// character. Empty if it can.
std::string ProblemOfText(std::string_view text);

}  // namespace replicant::config
