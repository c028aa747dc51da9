#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/config/node.h"
#include "base/config/problems.h"

namespace replicant::config {

// Limits of one file, far above the needs of a configuration, so that no input
// exhausts the memory or the stack.
struct YamlLimits {
  static constexpr int kDepth = 64;
  size_t file_bytes = size_t{256} << 10;
  // memory of the tree, aliases expanded
  size_t tree_bytes = size_t{4} << 20;
  size_t map_keys = 4096;
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
                              Problems* problems,
                              const YamlLimits& limits = {});

// Why `text` cannot be a plain value: bytes that are not UTF-8, or a control
// character. Empty if it can.
std::string ProblemOfText(std::string_view text);

}  // namespace replicant::config
