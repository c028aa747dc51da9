#include "learner/data/files/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace replicant::data {
namespace {

constexpr uint64_t kBlock = 512;
// Longest name in a separate header.
constexpr uint64_t kMaxNameBytes = 1 << 16;

// A header block: the fields of POSIX's ustar.
class Header {
 public:
  std::span<std::byte> block() { return block_; }

  bool IsZero() const {
    return std::ranges::all_of(block_,
                               [](std::byte b) { return b == std::byte{0}; });
  }
  // The sum of all bytes, with blanks in the place of the sum.
  bool HasRightSum() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < block_.size(); ++i) {
      sum += i >= 148 && i < 156 ? uint64_t{' '}
                                 : std::to_integer<uint64_t>(block_[i]);
    }
    return Number(148, 8) == sum;
  }
  std::string Name() const {
    const std::string_view prefix = Text(345, 155);
    // GNU tar has other fields there
    const bool is_posix = Text(257, 6) == "ustar" && !prefix.empty();
    return is_posix ? fmt::format("{}/{}", prefix, Text(0, 100))
                    : std::string(Text(0, 100));
  }
  std::optional<uint64_t> Size() const { return Number(124, 12); }
  char type() const { return static_cast<char>(block_[156]); }

 private:
  // Text up to a zero.
  std::string_view Text(size_t offset, size_t size) const {
    const std::string_view text(
        reinterpret_cast<const char*>(block_.data()) + offset, size);
    return text.substr(0, text.find('\0'));
  }
  // An octal number, or one of base 256 where the first bit is set.
  std::optional<uint64_t> Number(size_t offset, size_t size) const {
    if (std::to_integer<int>(block_[offset]) == 0x80) {
      uint64_t value = 0;
      for (size_t i = 1; i < size; ++i) {
        if (value >> 55U != 0) return std::nullopt;
        value = value << 8U | std::to_integer<uint64_t>(block_[offset + i]);
      }
      return value;
    }
    std::string_view text = Text(offset, size);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    text = text.substr(0, text.find(' '));
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, 8);
    if (error != std::errc() || stop != end) return std::nullopt;
    return value;
  }

  std::array<std::byte, kBlock> block_;
};

// The value of "path" among the records of pax: "LENGTH KEY=VALUE\n".
std::optional<std::string> PaxPath(std::string_view records) {
  std::optional<std::string> path;
  while (!records.empty()) {
    size_t length = 0;
    const auto [stop, error] = std::from_chars(
        records.data(), records.data() + records.size(), length);
    if (error != std::errc() || length < 4 || length > records.size()) break;
    std::string_view record = records.substr(0, length - 1);
    records.remove_prefix(length);
    record.remove_prefix(std::min(record.find(' '), record.size() - 1) + 1);
    constexpr std::string_view kPath = "path=";
    if (record.starts_with(kPath)) path = record.substr(kPath.size());
  }
  return path;
}

}  // namespace

void ForEachTarMember(uint64_t size_bytes, const std::string& where,
                      const ReadAt& read,
                      const std::function<void(const TarMember&)>& visit) {
  std::string long_name;
  Header header;
  uint64_t offset = 0;
  while (offset + kBlock <= size_bytes) {
    read(offset, header.block());
    // the end of a tar file
    if (header.IsZero()) return;
    const std::optional<uint64_t> size = header.Size();
    if (!header.HasRightSum() || !size) {
      throw IoError(fmt::format("{}: no tar header at byte {}", where, offset));
    }
    const uint64_t begin = offset + kBlock;
    if (*size > size_bytes - begin) {
      throw IoError(
          fmt::format("{}: cut off: the member at byte {} has {} bytes, and "
                      "the file ends {} after its header",
                      where, offset, *size, size_bytes - begin));
    }
    if (header.type() == 'L' || header.type() == 'x') {
      if (*size > kMaxNameBytes) {
        throw IoError(
            fmt::format("{}: a name of {} bytes at byte {}; at most "
                        "{}",
                        where, *size, offset, kMaxNameBytes));
      }
      std::string text(*size, '\0');
      read(begin, std::as_writable_bytes(std::span(text)));
      if (header.type() == 'x') {
        long_name = PaxPath(text).value_or(long_name);
      } else {
        long_name = text.c_str();
      }
    } else {
      if (header.type() == '0' || header.type() == '\0') {
        visit({.name = long_name.empty() ? header.Name() : long_name,
               .offset = begin,
               .size_bytes = *size});
      }
      long_name.clear();
    }
    // whole blocks
    offset = begin + (*size + kBlock - 1) / kBlock * kBlock;
  }
  if (offset < size_bytes) {
    throw IoError(
        fmt::format("{}: cut off: ends in a header at byte {}", where, offset));
  }
}

}  // namespace replicant::data
