#include "core/metrics/utf8.h"

#include <cstdint>

namespace replicant::metrics {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

bool IsIn(uint8_t byte, uint8_t low, uint8_t high) {
  return byte >= low && byte <= high;
}

// Length in bytes of the well-formed character at the front of `text`, which
// is not empty; 0 if there is none. The ranges are those of RFC 3629, section
// 4: they leave out overlong forms, surrogates and values above U+10FFFF.
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) -> uint8_t {
    // 0 is never a continuation byte
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  const auto is_tail = [&](size_t i) { return IsIn(byte(i), 0x80, 0xBF); };
  const uint8_t first = byte(0);

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

// C0, DEL or C1 (U+0080 to U+009F, which some terminals obey).
bool IsControl(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

}  // namespace

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    valid += size > 0 ? text.substr(0, size) : kReplacement;
    text.remove_prefix(size > 0 ? size : 1);
  }
  return valid;
}

std::string FitToColumns(std::string_view text, int columns) {
  if (columns <= 0) return "";
  const std::string valid = ToValidUtf8(text);
  std::string_view rest = valid;
  std::string line;
  // where the last column begins: the ellipsis goes there if more follows
  size_t last_column = 0;
  for (int column = 0; !rest.empty(); ++column) {
    if (column == columns) {
      line.resize(last_column);
      line += kEllipsis;
      break;
    }
    last_column = line.size();
    const std::string_view character = rest.substr(0, CharacterSize(rest));
    line += IsControl(character) ? " " : character;
    rest.remove_prefix(character.size());
  }
  return line;
}

}  // namespace replicant::metrics
