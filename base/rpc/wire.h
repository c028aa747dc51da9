#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/rpc/frame.h"

namespace replicant::rpc {

static_assert(std::endian::native == std::endian::little,
              "numbers go to the wire as they lie in memory");

// Ends a topic on the wire: ZeroMQ matches prefixes, and "a" must not match
// "ab".
inline constexpr char kTopicEnd = '\0';

// A text as one line for a message: control characters become spaces. At most
// `max_bytes`, cut between two characters of UTF-8.
std::string OneLine(std::string_view text, size_t max_bytes);

// Bytes that break their format.
class MalformedMessage : public CommError {
 public:
  using CommError::CommError;
};

// Throws MalformedMessage, with the name of the message, for any other number
// of parts.
void CheckNumParts(std::string_view message, std::span<const Frame> payload,
                   size_t count);

// Numbers that have one form on the wire: little-endian two's complement, or
// IEEE 754 of 4 and 8 bytes. bool is not among them; see WriteBool().
template <typename T>
concept WireNumber = (std::integral<T> || std::same_as<T, float> ||
                      std::same_as<T, double>)&&!std::same_as<T, bool>;

// Writes the fields of one message part one after another, without padding.
//
//   number           its bytes, little-endian
//   bool             one byte, 0 or 1
//   string, bytes    u32 count of bytes, then the bytes
//   array of T       u32 count of elements, then the elements
//
// Thread-safety: one thread at a time.
class WireWriter {
 public:
  WireWriter() = default;
  // Reserves room for `size_bytes`.
  explicit WireWriter(size_t size_bytes) { bytes_.reserve(size_bytes); }

  template <WireNumber T>
  void Write(T value) {
    Append(&value, sizeof(value));
  }
  void WriteBool(bool value) { Write<uint8_t>(value ? 1 : 0); }
  // These throw InvalidArgument, writing nothing, for more than 2^32 - 1
  // bytes or elements.
  void WriteString(std::string_view text);
  void WriteBytes(std::span<const std::byte> bytes);
  template <WireNumber T>
  void WriteArray(std::span<const T> values) {
    WriteCount(values.size());
    Append(values.data(), values.size_bytes());
  }

  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Returns the written bytes as a frame, without a copy; the writer is empty
  // afterwards.
  Frame Finish() { return Frame::Own(std::move(bytes_)); }

 private:
  void WriteCount(size_t count);
  void Append(const void* data, size_t size_bytes) {
    if (size_bytes == 0) return;
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size_bytes);
  }

  std::vector<std::byte> bytes_;
};

// Reads the bytes of a WireWriter; they may be hostile.
//
//   WireReader reader("replay.insert", frame.bytes());
//   const auto slot = reader.Read<uint64_t>("slot");
//   const auto table = reader.ReadString("table", /*max_bytes=*/64);
//   const auto priorities = reader.ReadArray<float>("priorities", 1024);
//   reader.Finish();
//
// Never reads past the end; every count is checked against its limit and
// against what is left before anything is allocated. All methods throw
// MalformedMessage with the name of the message, the field and its offset,
// after which the reader must not be used. Borrows the bytes.
//
// Thread-safety: one thread at a time.
class WireReader {
 public:
  // `message` names what is read; it must outlive the reader.
  WireReader(std::string_view message, std::span<const std::byte> bytes)
      : message_(message), bytes_(bytes) {}
  // Reads the only part of a payload; another number of parts is an error.
  WireReader(std::string_view message, std::span<const Frame> payload);

  template <WireNumber T>
  T Read(std::string_view field) {
    T value;
    std::memcpy(&value, Take(field, sizeof(T)).data(), sizeof(T));
    return value;
  }
  // Any byte but 0 and 1 is an error.
  bool ReadBool(std::string_view field);
  std::string ReadString(std::string_view field, uint32_t max_bytes);
  // Borrowed from the bytes being read.
  std::span<const std::byte> ReadBytes(std::string_view field,
                                       uint32_t max_bytes);
  template <WireNumber T>
  std::vector<T> ReadArray(std::string_view field, uint32_t max_count) {
    const uint32_t count = ReadCount(field, max_count, sizeof(T));
    const std::span<const std::byte> data = Take(field, count * sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), data.data(), data.size());
    return values;
  }
  // The next `size_bytes` bytes, borrowed; there is no count before them.
  std::span<const std::byte> ReadRaw(std::string_view field,
                                     size_t size_bytes) {
    return Take(field, size_bytes);
  }

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  // Throws unless everything was read.
  void Finish() const;

 private:
  std::span<const std::byte> Take(std::string_view field, size_t size_bytes) {
    if (size_bytes > remaining()) [[unlikely]] {
      ThrowTooShort(field, size_bytes);
    }
    const auto taken = bytes_.subspan(offset_, size_bytes);
    offset_ += size_bytes;
    return taken;
  }
  uint32_t ReadCount(std::string_view field, uint32_t max_count,
                     size_t element_bytes);
  [[noreturn]] void ThrowTooShort(std::string_view field,
                                  size_t size_bytes) const;

  std::string_view message_;
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
};

}  // namespace replicant::rpc
