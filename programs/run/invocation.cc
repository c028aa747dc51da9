#include "programs/run/invocation.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "base/error.h"

namespace replicant::programs {

int64_t ParseInteger(const std::string& option, const std::string& text,
                     config::Range<int64_t> range) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed != end || !range.Contains(value)) {
    throw ConfigError(fmt::format("{} {}: want a whole number in [{}, {}]",
                                  option, text, range.min, range.max));
  }
  return value;
}

}  // namespace replicant::programs
