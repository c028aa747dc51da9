#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// The bytes of a TensorBoard event file, written without protobuf.
//
// A file is a row of TFRecords, each holding one `Event` message. The field
// numbers are those of TensorFlow's event.proto, summary.proto, tensor.proto
// and tensor_shape.proto (package tensorflow). All functions are pure.
namespace replicant::metrics {

// One TFRecord:
//
//   u64 length | u32 masked CRC of length | payload | u32 masked CRC of payload
//
// little-endian, where masked(c) = rotate_right(c, 15) + 0xA282EAD8 over
// CRC-32C c. Source: TensorFlow, "TFRecord and tf.train.Example", section
// "TFRecords format details".
std::string FrameRecord(std::string_view payload);

// Serialised Summary.Value messages. Tags and text are made valid UTF-8.
std::string EncodeScalar(std::string_view tag, double value);
std::string EncodeText(std::string_view tag, std::string_view markdown);

// A serialised Event that holds one Summary.Value. `wall_time_s` counts from
// 1970 UTC.
std::string EncodeSummaryEvent(double wall_time_s, int64_t step,
                               std::string_view summary_value);

// The Event that every file begins with.
std::string EncodeVersionEvent(double wall_time_s);

}  // namespace replicant::metrics
