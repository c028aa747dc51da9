// Known bytes of protobuf's wire format (protobuf.dev, "Encoding").
#include "base/protobuf_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace replicant {
namespace {

using namespace std::string_literals;

TEST(ProtobufWriterTest, WritesWholeNumbersByVarints) {
  EXPECT_EQ(ProtobufWriter().Int(1, 150).bytes(), "\x08\x96\x01"s);
  EXPECT_EQ(ProtobufWriter().Int(2, 0).bytes(), "\x10\x00"s);
  // two's complement of 64 bits
  EXPECT_EQ(ProtobufWriter().Int(1, -2).bytes(),
            "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
  // a field number of more than 4 bits
  EXPECT_EQ(ProtobufWriter().Int(20, 1).bytes(), "\xa0\x01\x01"s);
}

TEST(ProtobufWriterTest, WritesRealNumbersLowestByteFirst) {
  EXPECT_EQ(ProtobufWriter().Float(3, 1.0F).bytes(), "\x1d\x00\x00\x80\x3f"s);
  EXPECT_EQ(ProtobufWriter().Double(3, 1.0).bytes(),
            "\x19\x00\x00\x00\x00\x00\x00\xf0\x3f"s);
}

TEST(ProtobufWriterTest, WritesTextsMessagesAndPackedFieldsWithTheirLength) {
  EXPECT_EQ(ProtobufWriter().Bytes(2, "testing").bytes(), "\x12\x07testing"s);
  const ProtobufWriter inner = ProtobufWriter().Int(1, 150);
  EXPECT_EQ(ProtobufWriter().Bytes(3, inner.bytes()).bytes(),
            "\x1a\x03\x08\x96\x01"s);
  EXPECT_EQ(ProtobufWriter()
                .PackedInts(6, std::vector<int64_t>{3, 270, 86942})
                .bytes(),
            "\x32\x06\x03\x8e\x02\x9e\xa7\x05"s);
  EXPECT_EQ(ProtobufWriter().PackedDoubles(1, std::vector<double>{1.0}).bytes(),
            "\x0a\x08\x00\x00\x00\x00\x00\x00\xf0\x3f"s);
}

}  // namespace
}  // namespace replicant
