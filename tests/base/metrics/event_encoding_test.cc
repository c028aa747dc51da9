#include "base/metrics/event_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

namespace replicant::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::string_view_literals;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

TEST(EventEncodingTest, HistogramCountsEqualBuckets) {
  const std::vector<float> values = {0, 0.5, 1, 1.5, 2, 3, 4};
  const ValueHistogram h = MakeHistogram(values, 4);
  EXPECT_EQ(h.min, 0.0);
  EXPECT_EQ(h.max, 4.0);
  EXPECT_EQ(h.sum, 12.0);
  EXPECT_EQ(h.sum_of_squares, 32.5);
  EXPECT_EQ(h.num_values, 7);
  EXPECT_THAT(h.bucket_limits, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(h.bucket_counts, ElementsAre(2, 2, 1, 2));
}

TEST(EventEncodingTest, HistogramOfOneValueHasOneBucket) {
  const std::vector<float> values = {7, 7, 7};
  const ValueHistogram h = MakeHistogram(values, 30);
  EXPECT_THAT(h.bucket_limits, ElementsAre(7));
  EXPECT_THAT(h.bucket_counts, ElementsAre(3));
}

// Would catch an index from a NaN, and sums that one infinity spoils.
TEST(EventEncodingTest, HistogramLeavesOutWhatIsNotFinite) {
  const std::vector<float> values = {1, kNan, kInfinity, -kInfinity, 3};
  const ValueHistogram h = MakeHistogram(values, 2);
  EXPECT_EQ(h.num_values, 2);
  EXPECT_EQ(h.sum, 4.0);
  EXPECT_THAT(h.bucket_counts, ElementsAre(1, 1));

  const ValueHistogram none = MakeHistogram(std::vector<float>{kNan}, 2);
  EXPECT_EQ(none.min, 0.0);
  EXPECT_EQ(none.num_values, 0);
  EXPECT_THAT(none.bucket_counts, IsEmpty());
}

// Would catch an overflow of the range, and a largest value beyond the end.
TEST(EventEncodingTest, HistogramHoldsTheWholeRangeOfFloat) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  for (const std::vector<float>& values :
       {std::vector<float>{-most, most, 0}, {0, least}, {least, 2 * least}}) {
    const ValueHistogram h = MakeHistogram(values, 30);
    EXPECT_EQ(
        std::accumulate(h.bucket_counts.begin(), h.bucket_counts.end(), 0.0),
        static_cast<double>(values.size()));
    EXPECT_TRUE(std::isfinite(h.sum_of_squares));
    EXPECT_TRUE(std::is_sorted(h.bucket_limits.begin(), h.bucket_limits.end()));
  }
}

TEST(EventEncodingDeathTest, AHistogramWithoutBucketsAborts) {
  EXPECT_DEATH(MakeHistogram({}, 0), "num_buckets > 0: 0 vs 0");
}

}  // namespace
}  // namespace replicant::metrics
