#include "base/metrics/event_encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/protobuf_writer.h"
#include "base/utf8.h"

namespace replicant::metrics {
namespace {

// Appends the `size` low bytes of `value`, lowest first.
void AppendLittleEndian(uint64_t value, int size, std::string* out) {
  for (int i = 0; i < size; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint32_t MaskedCrc(std::string_view bytes) {
  constexpr uint32_t kMaskDelta = 0xA282EAD8U;
  return std::rotr(Crc32c(bytes), 15) + kMaskDelta;
}

// A Summary.Value with its tag.
ProtobufWriter SummaryValue(std::string_view tag) {
  return ProtobufWriter().Bytes(/*tag*/ 1, ToValidUtf8(tag));
}

// `value` rounded to float; infinite if it is beyond float's range, where the
// plain conversion is undefined.
float ToFloat(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (std::abs(value) > kMax) {
    return std::copysign(std::numeric_limits<float>::infinity(),
                         value > 0.0 ? 1.0F : -1.0F);
  }
  return static_cast<float>(value);
}

}  // namespace

std::string FrameRecord(std::string_view payload) {
  std::string record;
  record.reserve(payload.size() + 16);
  AppendLittleEndian(payload.size(), 8, &record);
  AppendLittleEndian(MaskedCrc(record), 4, &record);
  record += payload;
  AppendLittleEndian(MaskedCrc(payload), 4, &record);
  return record;
}

ValueHistogram MakeHistogram(std::span<const float> values, int num_buckets) {
  REPLICANT_CHECK_GT(num_buckets, 0);
  ValueHistogram h;
  h.min = std::numeric_limits<double>::infinity();
  h.max = -h.min;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const auto v = static_cast<double>(value);
    h.min = std::min(h.min, v);
    h.max = std::max(h.max, v);
    h.sum += v;
    h.sum_of_squares += v * v;
    ++h.num_values;
  }
  if (h.num_values == 0) {
    h.min = h.max = 0.0;
    return h;
  }

  // floats as doubles: neither the width nor a limit can overflow
  const double width = (h.max - h.min) / num_buckets;
  if (width == 0.0) num_buckets = 1;
  for (int i = 1; i < num_buckets; ++i) {
    h.bucket_limits.push_back(h.min + i * width);
  }
  h.bucket_limits.push_back(h.max);
  h.bucket_counts.assign(static_cast<size_t>(num_buckets), 0.0);
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const double bucket =
        width == 0.0 ? 0.0 : (static_cast<double>(value) - h.min) / width;
    // the largest value belongs to the last bucket
    const auto i = std::min<size_t>(static_cast<size_t>(bucket),
                                    h.bucket_counts.size() - 1);
    h.bucket_counts[i] += 1.0;
  }
  return h;
}

std::string EncodeScalar(std::string_view tag, double value) {
  return SummaryValue(tag).Float(/*simple_value*/ 2, ToFloat(value)).bytes();
}

std::string EncodeText(std::string_view tag, std::string_view markdown) {
  // the text plugin knows its values by this name and reads string tensors
  const ProtobufWriter plugin =
      ProtobufWriter().Bytes(/*plugin_name*/ 1, "text");
  const ProtobufWriter metadata =
      ProtobufWriter().Bytes(/*plugin_data*/ 1, plugin.bytes());
  constexpr int64_t kDtString = 7;
  const ProtobufWriter dimension = ProtobufWriter().Int(/*size*/ 1, 1);
  const ProtobufWriter shape =
      ProtobufWriter().Bytes(/*dim*/ 2, dimension.bytes());
  const ProtobufWriter tensor =
      ProtobufWriter()
          .Int(/*dtype*/ 1, kDtString)
          .Bytes(/*tensor_shape*/ 2, shape.bytes())
          .Bytes(/*string_val*/ 8, ToValidUtf8(markdown));
  return SummaryValue(tag)
      .Bytes(/*tensor*/ 8, tensor.bytes())
      .Bytes(/*metadata*/ 9, metadata.bytes())
      .bytes();
}

std::string EncodeHistogram(std::string_view tag,
                            const ValueHistogram& histogram) {
  const ProtobufWriter histo =
      ProtobufWriter()
          .Double(/*min*/ 1, histogram.min)
          .Double(/*max*/ 2, histogram.max)
          .Double(/*num*/ 3, static_cast<double>(histogram.num_values))
          .Double(/*sum*/ 4, histogram.sum)
          .Double(/*sum_squares*/ 5, histogram.sum_of_squares)
          .PackedDoubles(/*bucket_limit*/ 6, histogram.bucket_limits)
          .PackedDoubles(/*bucket*/ 7, histogram.bucket_counts);
  return SummaryValue(tag).Bytes(/*histo*/ 5, histo.bytes()).bytes();
}

std::string EncodeImage(std::string_view tag, int height, int width,
                        std::string_view image) {
  constexpr int64_t kRgb = 3;
  const ProtobufWriter message = ProtobufWriter()
                                     .Int(/*height*/ 1, height)
                                     .Int(/*width*/ 2, width)
                                     .Int(/*colorspace*/ 3, kRgb)
                                     .Bytes(/*encoded_image_string*/ 4, image);
  return SummaryValue(tag).Bytes(/*image*/ 4, message.bytes()).bytes();
}

std::string EncodeSummaryEvent(double wall_time_s, int64_t step,
                               std::string_view summary_value) {
  const ProtobufWriter summary =
      ProtobufWriter().Bytes(/*value*/ 1, summary_value);
  return ProtobufWriter()
      .Double(/*wall_time*/ 1, wall_time_s)
      .Int(/*step*/ 2, step)
      .Bytes(/*summary*/ 5, summary.bytes())
      .bytes();
}

std::string EncodeVersionEvent(double wall_time_s) {
  return ProtobufWriter()
      .Double(/*wall_time*/ 1, wall_time_s)
      .Bytes(/*file_version*/ 3, "brain.Event:2")
      .bytes();
}

std::optional<EventHead> ParseEventHead(std::string_view record) {
  constexpr size_t kLengthBytes = 12;     // the length and its checksum
  constexpr char kWallTime = 1 << 3 | 1;  // field 1, a double
  constexpr char kStep = 2 << 3;          // field 2, a varint
  if (record.size() < kLengthBytes) return std::nullopt;
  uint64_t length = 0;
  std::memcpy(&length, record.data(), sizeof(length));
  EventHead head{.record_bytes = static_cast<int64_t>(length) + 16};
  std::string_view event = record.substr(kLengthBytes);
  if (event.starts_with(kWallTime)) {
    event.remove_prefix(std::min<size_t>(event.size(), 1 + sizeof(double)));
  }
  if (!event.starts_with(kStep)) return head;
  uint64_t step = 0;
  int shift = 0;
  for (const char c : event.substr(1)) {
    step |= static_cast<uint64_t>(c & 0x7F) << shift;
    shift += 7;
    if ((c & 0x80) == 0 || shift > 63) break;
  }
  head.step = static_cast<int64_t>(step);
  return head;
}

}  // namespace replicant::metrics
