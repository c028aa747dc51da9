#pragma once

#include <cstdint>
#include <string>

namespace replicant {

// Raises the limit of open files and connections of this process, and of those
// it starts, to the hard limit (`ulimit -Hn`), at most 65,536. Never lowers it.
void RaiseFileLimit();

// Throws ConfigError unless the limit allows `num_files`. `what` is the
// configuration key that needs them.
void CheckFileLimit(const std::string& what, int64_t num_files);

}  // namespace replicant
