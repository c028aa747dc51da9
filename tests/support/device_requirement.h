#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

namespace replicant::testing {

// Whether REPLICANT_REQUIRE, names separated by commas, holds `name`.
inline bool IsRequired(std::string_view name) {
  const char* const names = std::getenv("REPLICANT_REQUIRE");
  std::istringstream stream(names == nullptr ? "" : names);
  for (std::string part; std::getline(stream, part, ',');) {
    if (part == name) return true;
  }
  return false;
}

}  // namespace replicant::testing

// Ends a test that lacks what `name` stands for ("cuda", "nccl"): with the
// reason, a chain of <<, or as a failure if REPLICANT_REQUIRE names it.
// NOLINTBEGIN(bugprone-macro-parentheses): no chain is an expression
#define REPLICANT_SKIP_WITHOUT(name, reason)              \
  do {                                                    \
    if (replicant::testing::IsRequired(name)) {           \
      FAIL() << "REPLICANT_REQUIRE=" name ": " << reason; \
    }                                                     \
    GTEST_SKIP() << reason;                               \
  } while (false)
// NOLINTEND(bugprone-macro-parentheses)
