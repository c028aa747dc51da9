#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace replicant {
namespace {

// Values of RFC 3720, appendix B.4: another polynomial or a wrong bit order
// gives others.
TEST(Crc32cTest, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283U);
}

// Would catch a state that is not carried over a split, or a wrong tail.
TEST(Crc32cTest, PiecesGiveTheSameAsTheWhole) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  for (size_t split = 0; split <= text.size(); ++split) {
    EXPECT_EQ(Crc32c(text.substr(split), Crc32c(text.substr(0, split))),
              Crc32c(text));
  }
}

}  // namespace
}  // namespace replicant
