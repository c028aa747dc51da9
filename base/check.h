#pragma once

#include <fmt/format.h>

#include <string>

// Checks for bugs: conditions that no input can break unless the program is
// wrong. They are on in every build. A failure prints the place, the
// expression and the detail on stderr and in the log, then aborts.
//
//   REPLICANT_CHECK(total() > 0.0, "Find on a tree with no weight");
//   REPLICANT_CHECK(slot < capacity_, "slot {} of {}", slot, capacity_);
//   REPLICANT_CHECK_EQ(bytes.size(), shape.num_elements() * 4);
//
// The comparing forms print both values; an operand is evaluated once.
#define REPLICANT_CHECK(condition, ...)                                  \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::replicant::internal::CheckFailed(#condition, __FILE__, __LINE__, \
                                         ::fmt::format(__VA_ARGS__));    \
    }                                                                    \
  } while (false)

#define REPLICANT_CHECK_EQ(a, b) REPLICANT_CHECK_OP_(==, a, b)
#define REPLICANT_CHECK_NE(a, b) REPLICANT_CHECK_OP_(!=, a, b)
#define REPLICANT_CHECK_LT(a, b) REPLICANT_CHECK_OP_(<, a, b)
#define REPLICANT_CHECK_LE(a, b) REPLICANT_CHECK_OP_(<=, a, b)
#define REPLICANT_CHECK_GT(a, b) REPLICANT_CHECK_OP_(>, a, b)
#define REPLICANT_CHECK_GE(a, b) REPLICANT_CHECK_OP_(>=, a, b)

#define REPLICANT_CHECK_OP_(op, a, b)                   \
  do {                                                  \
    const auto& check_a = (a);                          \
    const auto& check_b = (b);                          \
    if (!(check_a op check_b)) [[unlikely]] {           \
      ::replicant::internal::CheckFailed(               \
          #a " " #op " " #b, __FILE__, __LINE__,        \
          ::fmt::format("{} vs {}", check_a, check_b)); \
    }                                                   \
  } while (false)

namespace replicant::internal {

[[noreturn]] void CheckFailed(const char* expression, const char* file,
                              int line, const std::string& detail);

}  // namespace replicant::internal
