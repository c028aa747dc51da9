#include "replicator/unknown_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace replicant::replicator {

void ThrowUnknownName(std::string_view what, std::string_view name,
                      const std::vector<std::string>& known) {
  throw InvalidArgument(fmt::format("{} '{}'; there are: {}", what, name,
                                    fmt::join(known, ", ")));
}

}  // namespace replicant::replicator
