#pragma once

#include <string>

#include "base/config/record.h"

namespace replicant::config {

// The manual of a configuration in three forms, made from the declarations of
// its Read() functions. See Describe() in base/config/load.h.
class Manual {
 public:
  explicit Manual(const SectionRecord& root);

  // Plain text for a terminal, each key with its doc below it.
  const std::string& text() const { return text_; }
  // A Markdown table per section.
  const std::string& markdown() const { return markdown_; }
  // A configuration with every key at its default, each explained in a comment.
  // Reading it gives the defaults.
  const std::string& reference_yaml() const { return reference_yaml_; }

 private:
  std::string text_;
  std::string markdown_;
  std::string reference_yaml_;
};

}  // namespace replicant::config
