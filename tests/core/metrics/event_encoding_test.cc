#include "core/metrics/event_encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

namespace replicant::metrics {
namespace {

using namespace std::string_view_literals;

// The bytes that tensorboard's RecordWriter makes of the payload "abc".
TEST(EventEncodingTest, FramesARecordAsTensorBoardDoes) {
  EXPECT_EQ(FrameRecord("abc"),
            "\x03\0\0\0\0\0\0\0\xB0\x99\x49\x0E"
            "abc\x6E\x57\xF1\x21"sv);
}

// The bytes that Event(wall_time=1.5, step=300, summary=...) is serialised to
// by the protobuf library: would catch a wrong field number or wire type.
TEST(EventEncodingTest, SerialisesAScalarAsProtobufDoes) {
  EXPECT_EQ(EncodeSummaryEvent(1.5, 300, EncodeScalar("loss", 0.25)),
            "\x09\0\0\0\0\0\0\xF8\x3F\x10\xAC\x02\x2A\x0D\x0A\x0B"
            "\x0A\x04loss\x15\0\0\x80\x3E"sv);
}

// A negative int64 takes ten bytes as a varint.
TEST(EventEncodingTest, SerialisesANegativeStepAsProtobufDoes) {
  EXPECT_EQ(
      EncodeSummaryEvent(1.5, -1, ""),
      "\x09\0\0\0\0\0\0\xF8\x3F\x10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"
      "\x2A\x02\x0A\0"sv);
}

TEST(EventEncodingTest, ScalarsBeyondFloatBecomeInfinite) {
  EXPECT_EQ(EncodeScalar("a", 1e300), EncodeScalar("a", INFINITY));
  EXPECT_EQ(EncodeScalar("a", -1e300), EncodeScalar("a", -INFINITY));
}

}  // namespace
}  // namespace replicant::metrics
