#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace replicant::testing {

// Returns the text in one line: a blank for each run of blanks and line ends.
inline std::string Unwrapped(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool is_blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (is_blank && (line.empty() || line.back() == ' ')) continue;
    line += is_blank ? ' ' : c;
  }
  return line;
}

}  // namespace replicant::testing
