#include "programs/program.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using testing::MessageOf;

TEST(ProgramTest, ReadsWholeNumbersOfOptions) {
  EXPECT_EQ(ParseInteger("--index", "3", {0, 3}), 3);
  EXPECT_EQ(ParseInteger("--index", "-3", {-5, 3}), -3);
  for (const char* text :
       {"4", "-1", "", "2x", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(
        MessageOf<ConfigError>([&] {
          ParseInteger("--index", text, {0, 3});
        }),
        std::string("--index ") + text + ": want a whole number in [0, 3]");
  }
}

}  // namespace
}  // namespace replicant::programs
