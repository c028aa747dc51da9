#include "base/rpc/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace replicant::rpc {

std::string OneLine(std::string_view text, size_t max_bytes) {
  std::string line(Utf8Prefix(text, max_bytes));
  std::ranges::replace_if(
      line,
      [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7f;
      },
      ' ');
  return line;
}

void CheckNumParts(std::string_view message, std::span<const Frame> payload,
                   size_t count) {
  if (payload.size() == count) return;
  throw MalformedMessage(
      fmt::format("{}: {} parts, expected {}", message, payload.size(), count));
}

void WireWriter::WriteString(std::string_view text) {
  WriteBytes(std::as_bytes(std::span(text)));
}

void WireWriter::WriteBytes(std::span<const std::byte> bytes) {
  WriteCount(bytes.size());
  Append(bytes.data(), bytes.size());
}

void WireWriter::WriteCount(size_t count) {
  if (count > std::numeric_limits<uint32_t>::max()) {
    throw InvalidArgument(fmt::format(
        "WireWriter: {} bytes or elements in one field; at most {} are allowed",
        count, std::numeric_limits<uint32_t>::max()));
  }
  Write(static_cast<uint32_t>(count));
}

WireReader::WireReader(std::string_view message, std::span<const Frame> payload)
    : message_(message) {
  CheckNumParts(message, payload, 1);
  bytes_ = payload[0].bytes();
}

bool WireReader::ReadBool(std::string_view field) {
  const size_t offset = offset_;
  const auto value = Read<uint8_t>(field);
  if (value > 1) {
    throw MalformedMessage(
        fmt::format("{}: field '{}' at offset {}: expected 0 or 1, got {}",
                    message_, field, offset, value));
  }
  return value == 1;
}

std::string WireReader::ReadString(std::string_view field, uint32_t max_bytes) {
  const std::span<const std::byte> bytes = ReadBytes(field, max_bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> WireReader::ReadBytes(std::string_view field,
                                                 uint32_t max_bytes) {
  return Take(field, ReadCount(field, max_bytes, /*element_bytes=*/1));
}

uint32_t WireReader::ReadCount(std::string_view field, uint32_t max_count,
                               size_t element_bytes) {
  const size_t offset = offset_;
  const auto count = Read<uint32_t>(field);
  if (count > max_count) {
    throw MalformedMessage(
        fmt::format("{}: field '{}' at offset {}: count {} is over the limit "
                    "of {}",
                    message_, field, offset, count, max_count));
  }
  // 2^32 elements of 8 bytes do not overflow 64 bits
  if (count * element_bytes > remaining()) {
    ThrowTooShort(field, count * element_bytes);
  }
  return count;
}

void WireReader::ThrowTooShort(std::string_view field,
                               size_t size_bytes) const {
  throw MalformedMessage(
      fmt::format("{}: field '{}' at offset {}: expected {} bytes, {} are left",
                  message_, field, offset_, size_bytes, remaining()));
}

void WireReader::Finish() const {
  if (remaining() == 0) return;
  throw MalformedMessage(
      fmt::format("{}: {} bytes after the last field, at offset {}", message_,
                  remaining(), offset_));
}

}  // namespace replicant::rpc
