#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace replicant {

// Writes one protobuf message in wire format, field by field (protobuf.dev,
// "Encoding"). A message within another is a field of its bytes.
//
//   ProtobufWriter inner;
//   inner.Int(/*size*/ 1, 3);
//   ProtobufWriter().Bytes(/*dim*/ 2, inner.bytes()).bytes();
class ProtobufWriter {
 public:
  // int32, int64, uint32, uint64, bool and enum fields.
  ProtobufWriter& Int(int field, int64_t value);
  ProtobufWriter& Float(int field, float value);
  ProtobufWriter& Double(int field, double value);
  // Strings, bytes and messages.
  ProtobufWriter& Bytes(int field, std::string_view value);
  // A packed repeated field.
  ProtobufWriter& PackedInts(int field, std::span<const int64_t> values);
  ProtobufWriter& PackedDoubles(int field, std::span<const double> values);

  const std::string& bytes() const { return bytes_; }

 private:
  enum class WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

  void Tag(int field, WireType type);
  void Varint(uint64_t value);
  // Appends the `size` low bytes of `value`, lowest first.
  void Fixed(uint64_t value, int size);

  std::string bytes_;
};

}  // namespace replicant
