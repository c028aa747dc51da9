#include "core/metrics/event_encoding.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/base/crc32c.h"
#include "core/metrics/utf8.h"

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

// Writes the fields of one protobuf message (protobuf.dev, "Encoding").
class Message {
 public:
  Message& Int64(int field, int64_t value) {
    Tag(field, WireType::kVarint);
    Varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& Float(int field, float value) {
    Tag(field, WireType::kFixed32);
    AppendLittleEndian(std::bit_cast<uint32_t>(value), 4, &bytes_);
    return *this;
  }
  Message& Double(int field, double value) {
    Tag(field, WireType::kFixed64);
    AppendLittleEndian(std::bit_cast<uint64_t>(value), 8, &bytes_);
    return *this;
  }
  // Strings, bytes and messages within messages.
  Message& Bytes(int field, std::string_view value) {
    Tag(field, WireType::kLength);
    Varint(value.size());
    bytes_ += value;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  enum class WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

  void Tag(int field, WireType type) {
    Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
  }
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// A Summary.Value with its tag.
Message SummaryValue(std::string_view tag) {
  return Message().Bytes(/*tag*/ 1, ToValidUtf8(tag));
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

std::string EncodeScalar(std::string_view tag, double value) {
  return SummaryValue(tag).Float(/*simple_value*/ 2, ToFloat(value)).bytes();
}

std::string EncodeText(std::string_view tag, std::string_view markdown) {
  // the text plugin knows its values by this name and reads string tensors
  const Message plugin = Message().Bytes(/*plugin_name*/ 1, "text");
  const Message metadata = Message().Bytes(/*plugin_data*/ 1, plugin.bytes());
  constexpr int64_t kDtString = 7;
  const Message dimension = Message().Int64(/*size*/ 1, 1);
  const Message shape = Message().Bytes(/*dim*/ 2, dimension.bytes());
  const Message tensor = Message()
                             .Int64(/*dtype*/ 1, kDtString)
                             .Bytes(/*tensor_shape*/ 2, shape.bytes())
                             .Bytes(/*string_val*/ 8, ToValidUtf8(markdown));
  return SummaryValue(tag)
      .Bytes(/*tensor*/ 8, tensor.bytes())
      .Bytes(/*metadata*/ 9, metadata.bytes())
      .bytes();
}

std::string EncodeSummaryEvent(double wall_time_s, int64_t step,
                               std::string_view summary_value) {
  const Message summary = Message().Bytes(/*value*/ 1, summary_value);
  return Message()
      .Double(/*wall_time*/ 1, wall_time_s)
      .Int64(/*step*/ 2, step)
      .Bytes(/*summary*/ 5, summary.bytes())
      .bytes();
}

std::string EncodeVersionEvent(double wall_time_s) {
  return Message()
      .Double(/*wall_time*/ 1, wall_time_s)
      .Bytes(/*file_version*/ 3, "brain.Event:2")
      .bytes();
}

}  // namespace replicant::metrics
