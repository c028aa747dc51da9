#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace replicant {
namespace {

TEST(Utf8Test, WellFormedTextStaysAsItIs) {
  const std::string text = "a\x7F é € 😀 \xF4\x8F\xBF\xBF \xED\x9F\xBF";
  EXPECT_EQ(ToValidUtf8(text), text);
}

// Each of these is refused by Python's and protobuf's decoders; the bounds are
// from RFC 3629, section 4.
TEST(Utf8Test, IllFormedBytesAreReplacedOneByOne) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ToValidUtf8("\x80"), r) << "a lone continuation byte";
  EXPECT_EQ(ToValidUtf8("\xC1\xBF"), r + r) << "overlong, 2 bytes";
  EXPECT_EQ(ToValidUtf8("\xE0\x9F\xBF"), r + r + r) << "overlong, 3 bytes";
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(ToValidUtf8("\xF0\x8F\xBF\xBF"), r + r + r + r) << "overlong, 4";
  EXPECT_EQ(ToValidUtf8("\xF4\x90\x80\x80"), r + r + r + r) << "> U+10FFFF";
  EXPECT_EQ(ToValidUtf8("\xF5x"), r + "x");
  EXPECT_EQ(ToValidUtf8("a\xE2\x82"), "a" + r + r) << "cut at the end";
  EXPECT_EQ(ToValidUtf8("\xC3(\xC3\xA9"), r + "(é");
}

TEST(Utf8Test, TextIsUtf8IfEveryByteIsPartOfACharacter) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\x7F é € 😀"));
  EXPECT_FALSE(IsUtf8("a\xE9"));
  EXPECT_FALSE(IsUtf8("\xED\xA0\x80"));
  EXPECT_EQ(Utf8Size(""), 0U);
  EXPECT_EQ(Utf8Size("€uro"), 3U);
}

TEST(Utf8Test, APrefixEndsBetweenTwoCharacters) {
  EXPECT_EQ(Utf8Prefix("a€b", 5), "a€b");
  EXPECT_EQ(Utf8Prefix("a€b", 4), "a€");
  EXPECT_EQ(Utf8Prefix("a€b", 3), "a");
  EXPECT_EQ(Utf8Prefix("€", 2), "");
}

}  // namespace
}  // namespace replicant
