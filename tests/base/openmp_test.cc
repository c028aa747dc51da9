#include "base/openmp.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace replicant {
namespace {

std::string OutputOf(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 256> text{};
  const size_t size = std::fread(text.data(), 1, text.size(), pipe);
  ::pclose(pipe);
  return {text.data(), size};
}

TEST(UsePassiveOpenMpTest, StartsAgainWithThePolicyAndTheSameArguments) {
  EXPECT_EQ(OutputOf("env -u OMP_WAIT_POLICY " REPLICANT_PRINT_WAIT_POLICY
                     " one 'two three'"),
            "passive one two three");
}

TEST(UsePassiveOpenMpTest, LeavesAPolicyThatIsSet) {
  EXPECT_EQ(OutputOf("OMP_WAIT_POLICY=active " REPLICANT_PRINT_WAIT_POLICY),
            "active");
}

}  // namespace
}  // namespace replicant
