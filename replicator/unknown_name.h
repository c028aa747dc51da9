#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace replicant::replicator {

// Throws InvalidArgument "<what> '<name>'; there are: a, b".
[[noreturn]] void ThrowUnknownName(std::string_view what, std::string_view name,
                                   const std::vector<std::string>& known);

}  // namespace replicant::replicator
