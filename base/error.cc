#include "base/error.h"

#include <fmt/format.h>

#include <system_error>

namespace replicant {

IoError IoError::FromErrno(const std::string& what, const std::string& path,
                           int error_number) {
  return IoError(fmt::format("{}: {}: {}", what, path,
                             std::generic_category().message(error_number)));
}

}  // namespace replicant
