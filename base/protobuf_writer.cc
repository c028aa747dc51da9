#include "base/protobuf_writer.h"

#include <bit>

namespace replicant {

ProtobufWriter& ProtobufWriter::Int(int field, int64_t value) {
  Tag(field, WireType::kVarint);
  Varint(static_cast<uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::Float(int field, float value) {
  Tag(field, WireType::kFixed32);
  Fixed(std::bit_cast<uint32_t>(value), 4);
  return *this;
}

ProtobufWriter& ProtobufWriter::Double(int field, double value) {
  Tag(field, WireType::kFixed64);
  Fixed(std::bit_cast<uint64_t>(value), 8);
  return *this;
}

ProtobufWriter& ProtobufWriter::Bytes(int field, std::string_view value) {
  Tag(field, WireType::kLength);
  Varint(value.size());
  bytes_ += value;
  return *this;
}

ProtobufWriter& ProtobufWriter::PackedInts(int field,
                                           std::span<const int64_t> values) {
  ProtobufWriter packed;
  for (const int64_t value : values) {
    packed.Varint(static_cast<uint64_t>(value));
  }
  return Bytes(field, packed.bytes());
}

ProtobufWriter& ProtobufWriter::PackedDoubles(int field,
                                              std::span<const double> values) {
  ProtobufWriter packed;
  for (const double value : values) {
    packed.Fixed(std::bit_cast<uint64_t>(value), 8);
  }
  return Bytes(field, packed.bytes());
}

void ProtobufWriter::Tag(int field, WireType type) {
  Varint(static_cast<uint64_t>(field) << 3U | static_cast<uint64_t>(type));
}

void ProtobufWriter::Varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7U) {
    bytes_ += static_cast<char>(value | 0x80U);
  }
  bytes_ += static_cast<char>(value);
}

void ProtobufWriter::Fixed(uint64_t value, int size) {
  for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

}  // namespace replicant
