#include "base/rpc/wire.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/message_of.h"

namespace replicant::rpc {
namespace {

using replicant::testing::MessageOf;

TEST(WireTest, EveryFieldComesBackAsItWasWritten) {
  WireWriter writer;
  writer.Write<uint8_t>(255);
  writer.Write<int16_t>(-2);
  writer.Write<uint64_t>(0x0123456789abcdef);
  writer.Write(-0.5);
  writer.Write(std::numeric_limits<float>::infinity());
  writer.WriteBool(true);
  writer.WriteString("cheetah");
  writer.WriteBytes({});
  const std::vector<float> priorities = {1.0F, 2.5F};
  writer.WriteArray(std::span(priorities));
  const Frame frame = writer.Finish();

  WireReader reader("test", frame.bytes());
  EXPECT_EQ(reader.Read<uint8_t>("a"), 255);
  EXPECT_EQ(reader.Read<int16_t>("b"), -2);
  EXPECT_EQ(reader.Read<uint64_t>("c"), 0x0123456789abcdef);
  EXPECT_EQ(reader.Read<double>("d"), -0.5);
  EXPECT_EQ(reader.Read<float>("e"), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(reader.ReadBool("f"));
  EXPECT_EQ(reader.ReadString("g", 7), "cheetah");
  EXPECT_TRUE(reader.ReadBytes("h", 0).empty());
  EXPECT_EQ(reader.ReadArray<float>("i", 2), priorities);
  reader.Finish();
}

// Peers in other languages rely on these very bytes.
TEST(WireTest, NumbersAreLittleEndianAndCountsComeFirst) {
  WireWriter writer;
  writer.Write<uint16_t>(0x0102);
  writer.WriteString("ab");
  const auto bytes = writer.bytes();
  const std::string text(reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
  EXPECT_EQ(text, std::string("\x02\x01\x02\0\0\0ab", 8));
}

TEST(WireTest, EndOfBytesIsAnErrorThatNamesFieldAndOffset) {
  WireWriter writer;
  writer.Write<uint32_t>(1);
  WireReader reader("replay.insert", writer.bytes());
  static_cast<void>(reader.Read<uint16_t>("version"));
  EXPECT_EQ(
      MessageOf<MalformedMessage>([&] { reader.Read<uint64_t>("slot"); }),
      "replay.insert: field 'slot' at offset 2: expected 8 bytes, 2 are left");
}

// A count of 2^32 - 1 doubles must fail before anything is allocated.
TEST(WireTest, HugeCountIsRefusedBeforeAllocation) {
  WireWriter writer;
  writer.Write(std::numeric_limits<uint32_t>::max());
  WireReader limited("m", writer.bytes());
  EXPECT_EQ(
      MessageOf<MalformedMessage>([&] { limited.ReadArray<double>("x", 10); }),
      "m: field 'x' at offset 0: count 4294967295 is over the limit of 10");
  WireReader unlimited("m", writer.bytes());
  EXPECT_EQ(MessageOf<MalformedMessage>([&] {
              unlimited.ReadArray<double>("x",
                                          std::numeric_limits<uint32_t>::max());
            }),
            "m: field 'x' at offset 4: expected 34359738360 bytes, 0 are left");
}

TEST(WireTest, BoolOtherThanZeroAndOneIsAnError) {
  WireWriter writer;
  writer.Write<uint8_t>(2);
  WireReader reader("m", writer.bytes());
  EXPECT_EQ(MessageOf<MalformedMessage>([&] { reader.ReadBool("is_last"); }),
            "m: field 'is_last' at offset 0: expected 0 or 1, got 2");
}

TEST(WireTest, BytesAfterTheLastFieldAreAnError) {
  WireWriter writer;
  writer.Write<uint32_t>(1);
  WireReader reader("m", writer.bytes());
  static_cast<void>(reader.Read<uint8_t>("x"));
  EXPECT_EQ(MessageOf<MalformedMessage>([&] { reader.Finish(); }),
            "m: 3 bytes after the last field, at offset 1");
}

TEST(WireTest, RawBytesHaveNoCount) {
  WireWriter writer;
  writer.Write<uint16_t>(0x6261);
  WireReader reader("m", writer.bytes());
  EXPECT_EQ(reader.ReadRaw("x", 2).size(), 2u);
  EXPECT_EQ(reader.offset(), 2u);
}

TEST(WireTest, APayloadHasOnePart) {
  WireWriter writer;
  writer.Write<uint32_t>(7);
  Message payload;
  EXPECT_EQ(MessageOf<MalformedMessage>([&] { WireReader("m", payload); }),
            "m: 0 parts, expected 1");
  payload.push_back(writer.Finish());
  EXPECT_EQ(WireReader("m", payload).Read<uint32_t>("x"), 7u);
}

TEST(WireTest, OneLineHasNoControlCharactersAndWholeOnesOfUtf8) {
  EXPECT_EQ(OneLine("a\nb\tc\x7f", 100), "a b c ");
  EXPECT_EQ(OneLine("abc", 3), "abc");
  EXPECT_EQ(OneLine("abc", 2), "ab");
  // e with an acute accent has two bytes
  EXPECT_EQ(OneLine("a\xc3\xa9", 3), "a\xc3\xa9");
  EXPECT_EQ(OneLine("a\xc3\xa9", 2), "a");
  EXPECT_EQ(OneLine("\xc3\xa9", 1), "");
}

}  // namespace
}  // namespace replicant::rpc
