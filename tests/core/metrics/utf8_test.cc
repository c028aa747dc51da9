#include "core/metrics/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace replicant::metrics {
namespace {

TEST(Utf8Test, WellFormedTextStaysAsItIs) {
  const std::string text = "a\x7F é € 😀 \xF4\x8F\xBF\xBF \xED\x9F\xBF";
  EXPECT_EQ(ToValidUtf8(text), text);
}

// Each of these is refused by Python's and protobuf's decoders; the bounds are
// those of RFC 3629, section 4.
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

TEST(Utf8Test, WhatDoesNotFitIsCutWithAnEllipsis) {
  EXPECT_EQ(FitToColumns("steps", 5), "steps");
  EXPECT_EQ(FitToColumns("steps", 4), "ste…");
  EXPECT_EQ(FitToColumns("éééé", 3), "éé…");
  EXPECT_EQ(FitToColumns("ab", 1), "…");
  EXPECT_EQ(FitToColumns("ab", 0), "");
  EXPECT_EQ(FitToColumns("", 3), "");
}

// A line that moved the cursor would write over what is above it.
TEST(Utf8Test, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(FitToColumns("a\nb\x1B[2Jc\x7F\xC2\x9B", 20), "a b [2Jc  ");
}

}  // namespace
}  // namespace replicant::metrics
