#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The bytes of a TensorBoard event file, written without protobuf.
//
// A file is a row of TFRecords, each holding one `Event` message. The field
// numbers come from TensorFlow's event.proto, summary.proto, histogram.proto,
// tensor.proto and tensor_shape.proto (package tensorflow). All functions are
// pure.
namespace replicant::metrics {

// One TFRecord:
//
//   u64 length | u32 masked CRC of length | payload | u32 masked CRC of payload
//
// little-endian, where masked(c) = rotate_right(c, 15) + 0xA282EAD8 over
// CRC-32C c. Source: TensorFlow, "TFRecord and tf.train.Example", section
// "TFRecords format details".
std::string FrameRecord(std::string_view payload);

// The distribution of some values. Only finite values are counted.
struct ValueHistogram {
  double min = 0.0;
  double max = 0.0;
  double sum = 0.0;
  double sum_of_squares = 0.0;
  int64_t num_values = 0;
  // Bucket i holds values from limit i-1 (or min) up to limit i; the last
  // limit is max. Both are empty if there is no finite value.
  std::vector<double> bucket_limits;
  std::vector<double> bucket_counts;
};

// Equal buckets between the smallest and the largest finite value; one bucket
// if these are equal. `num_buckets` > 0 (checked).
ValueHistogram MakeHistogram(std::span<const float> values, int num_buckets);

// Serialised Summary.Value messages. Tags and text are made valid UTF-8.
std::string EncodeScalar(std::string_view tag, double value);
std::string EncodeText(std::string_view tag, std::string_view markdown);
std::string EncodeHistogram(std::string_view tag,
                            const ValueHistogram& histogram);
// `image` is a PNG or GIF file; TensorBoard plays an animated GIF.
std::string EncodeImage(std::string_view tag, int height, int width,
                        std::string_view image);

// A serialised Event that holds one Summary.Value. `wall_time_s` counts from
// 1970 UTC.
std::string EncodeSummaryEvent(double wall_time_s, int64_t step,
                               std::string_view summary_value);

// The Event that every file begins with.
std::string EncodeVersionEvent(double wall_time_s);

// What the first bytes of a TFRecord say about the Event in it.
struct EventHead {
  int64_t record_bytes = 0;  // with both checksums
  int64_t step = 0;
};
// A record's length, its checksum, and an Event's time and step.
inline constexpr size_t kMaxEventHeadBytes = 12 + 9 + 11;

// Reads a record that EncodeSummaryEvent() or EncodeVersionEvent() made, from
// its first kMaxEventHeadBytes, or all of its bytes. std::nullopt if they hold
// no whole length.
std::optional<EventHead> ParseEventHead(std::string_view record);

}  // namespace replicant::metrics
