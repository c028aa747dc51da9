#pragma once

#include <string>

namespace replicant::programs {

// Quotes a word for a POSIX shell, if necessary.
std::string ShellWord(const std::string& word);

}  // namespace replicant::programs
