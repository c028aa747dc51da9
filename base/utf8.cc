#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace replicant {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool IsIn(uint8_t byte, uint8_t low, uint8_t high) {
  return byte >= low && byte <= high;
}

bool IsTail(uint8_t byte) { return IsIn(byte, 0x80, 0xBF); }

}  // namespace

// The ranges are from RFC 3629, section 4.
size_t Utf8Size(std::string_view text) {
  const auto byte = [&](size_t i) -> uint8_t {
    // 0 is never a continuation byte
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  const auto is_tail = [&](size_t i) { return IsTail(byte(i)); };
  const uint8_t first = byte(0);

  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (IsIn(first, 0xC2, 0xDF)) return is_tail(1) ? 2 : 0;
  if (IsIn(first, 0xE0, 0xEF)) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : 0xBF;
    return IsIn(byte(1), low, high) && is_tail(2) ? 3 : 0;
  }
  if (IsIn(first, 0xF0, 0xF4)) {
    const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
    return IsIn(byte(1), low, high) && is_tail(2) && is_tail(3) ? 4 : 0;
  }
  return 0;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = Utf8Size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t size = Utf8Size(text);
    valid += size > 0 ? text.substr(0, size) : kReplacement;
    text.remove_prefix(size > 0 ? size : 1);
  }
  return valid;
}

std::string_view Utf8Prefix(std::string_view text, size_t max_bytes) {
  size_t end = std::min(text.size(), max_bytes);
  // back to the first byte of the character that does not fit
  while (end > 0 && end < text.size() &&
         IsTail(static_cast<uint8_t>(text[end]))) {
    --end;
  }
  return text.substr(0, end);
}

}  // namespace replicant
