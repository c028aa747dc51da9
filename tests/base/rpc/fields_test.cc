#include "base/rpc/fields.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "tests/support/list_fields.h"
#include "tests/support/message_of.h"

namespace replicant::rpc {
namespace {

using replicant::testing::ListFields;
using replicant::testing::MessageOf;

enum class Color : uint8_t { kRed = 0, kBlue = 1 };

struct Point {
  static constexpr std::string_view kName = "m";
  int32_t x = 0;
  double y = 0.0;

  template <class V>
  void Fields(V& v) {
    v.Number("x", &x);
    v.Number("y", &y, "upwards");
    v.Check(x < 100, "field 'x': {} is too large", x);
  }
  bool operator==(const Point&) const = default;
};

struct Everything {
  static constexpr std::string_view kName = "m";
  uint16_t number = 0;
  bool flag = false;
  Color color = Color::kRed;
  std::string text, cut, line;
  std::vector<uint32_t> array;
  std::vector<Point> points;
  std::vector<std::string> words;
  std::map<std::string, Point> map;
  std::optional<Point> optional;

  template <class V>
  void Fields(V& v) {
    v.Number("number", &number);
    v.Bool("flag", &flag);
    v.Enum("color", &color, {"red", "blue"});
    v.String("text", &text, 10);
    v.CutString("cut", &cut, 3);
    v.Line("line", &line, 5);
    v.Array("array", &array, 2);
    v.List("num_points", &points, 2);
    v.List("num_words", &words, 3,
           [&v](std::string& word) { v.String("word", &word, 4); });
    v.Map("num_entries", &map, 2, 8);
    v.Optional("has_optional", &optional);
  }
  bool operator==(const Everything&) const = default;
};

Everything Sample() {
  return {.number = 0x0102,
          .flag = true,
          .color = Color::kBlue,
          .text = "text",
          .cut = "abc",
          .line = "a b",
          .array = {7, 8},
          .points = {{1, 0.5}, {2, -0.5}},
          .words = {"x", "yz"},
          .map = {{"p", {3, 1.0}}, {"q", {4, 2.0}}},
          .optional = Point{5, 3.0}};
}

TEST(FieldsTest, AMessageComesBackAsItWasWritten) {
  EXPECT_EQ(DecodeMessage<Everything>(EncodeMessage(Sample())), Sample());
  EXPECT_EQ(DecodeMessage<Everything>(EncodeMessage(Everything())),
            Everything());
}

// Would catch other bytes than those of a writer without declarations.
TEST(FieldsTest, TheBytesAreThoseOfTheFieldsInTheirOrder) {
  WireWriter writer;
  writer.Write(uint16_t{0x0102});
  writer.WriteBool(true);
  writer.Write(uint8_t{1});
  for (const char* const text : {"text", "abc", "a b"}) {
    writer.WriteString(text);
  }
  writer.WriteArray<uint32_t>(std::vector<uint32_t>{7, 8});
  const auto point = [&](const Point& p) {
    writer.Write(p.x);
    writer.Write(p.y);
  };
  writer.Write(uint32_t{2});
  point({1, 0.5});
  point({2, -0.5});
  writer.Write(uint32_t{2});
  writer.WriteString("x");
  writer.WriteString("yz");
  writer.Write(uint32_t{2});
  writer.WriteString("p");
  point({3, 1.0});
  writer.WriteString("q");
  point({4, 2.0});
  writer.WriteBool(true);
  point({5, 3.0});
  const Frame frame = EncodePart(Sample());
  EXPECT_TRUE(std::ranges::equal(frame.bytes(), writer.bytes()));
}

TEST(FieldsTest, LongTextsAreCutAndLinesHaveNoControlCharacters) {
  Everything message;
  message.cut = "abcdef";
  message.line = "a\nbcdefg";
  const auto read = DecodeMessage<Everything>(EncodeMessage(message));
  EXPECT_EQ(read.cut, "abc");
  EXPECT_EQ(read.line, "a bcd");
}

TEST(FieldsTest, WhatBreaksTheDeclarationIsNamed) {
  const auto problem = [](const Everything& message) {
    const Message payload = EncodeMessage(message);
    return MessageOf<MalformedMessage>(
        [&] { DecodeMessage<Everything>(payload); });
  };
  EXPECT_EQ(problem({.color = static_cast<Color>(2)}),
            "m: field 'color': 2 is not in [0, 1]");
  EXPECT_EQ(problem({.text = "12345678901"}),
            "m: field 'text' at offset 4: count 11 is over the limit of 10");
  EXPECT_EQ(problem({.points = {{}, {}, {}}}),
            "m: field 'num_points': 3 is over the limit of 2");
  EXPECT_EQ(problem({.points = {{.x = 100}}}),
            "m: field 'x': 100 is too large");
  EXPECT_EQ(problem({.words = {"12345"}}),
            "m: field 'word' at offset 28: count 5 is over the limit of 4");
  EXPECT_EQ(
      MessageOf<MalformedMessage>([] { DecodeMessage<Point>(Message{}); }),
      "m: 0 parts, expected 1");
  EXPECT_EQ(MessageOf<MalformedMessage>(
                [] { DecodePart<Point>(EncodePart(Everything()).bytes()); }),
            "m: 21 bytes after the last field, at offset 12");

  // a line and names as no writer makes them
  WireWriter line;
  line.Write(uint16_t{0});
  line.WriteBool(false);
  line.Write(uint8_t{0});
  for (const char* const text : {"", "", "a\tb"}) line.WriteString(text);
  EXPECT_EQ(MessageOf<MalformedMessage>(
                [&] { DecodePart<Everything>(line.bytes()); }),
            "m: field 'line' has control characters");
  WireWriter map;
  map.Write(uint16_t{0});
  map.WriteBool(false);
  map.Write(uint8_t{0});
  for (int i = 0; i < 6; ++i) map.Write(uint32_t{0});
  map.Write(uint32_t{2});
  for (int i = 0; i < 2; ++i) {
    map.WriteString("same");
    map.Write(int32_t{0});
    map.Write(0.0);
  }
  EXPECT_EQ(
      MessageOf<MalformedMessage>([&] { DecodePart<Everything>(map.bytes()); }),
      "m: field 'name' is not in ascending order");
}

TEST(FieldsTest, TheListReadsAsAMessageTable) {
  EXPECT_EQ(ListFields<Everything>(),
            "u16 number, bool flag, u8 color (0 red, 1 blue), string text, "
            "string cut, string line, array of u32 array, u32 num_points, "
            "num_points x (i32 x, f64 y (upwards)), u32 num_words, num_words x "
            "string word, u32 num_entries, num_entries x (string name, i32 x, "
            "f64 y (upwards)), bool has_optional and, if so, i32 x, f64 y "
            "(upwards)");
}

}  // namespace
}  // namespace replicant::rpc
