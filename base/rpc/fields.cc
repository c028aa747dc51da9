#include "base/rpc/fields.h"

#include <algorithm>

namespace replicant::rpc {

void FieldReader::Line(std::string_view name, std::string* value,
                       uint32_t max_bytes) {
  String(name, value, max_bytes);
  const bool is_line = std::ranges::none_of(*value, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
  Check(is_line, "field '{}' has control characters", name);
}

uint32_t FieldReader::Count(std::string_view name, uint32_t max_count) {
  const auto count = reader_.Read<uint32_t>(name);
  Check(count <= max_count, "field '{}': {} is over the limit of {}", name,
        count, max_count);
  return count;
}

void FieldReader::Refuse(const std::string& text) const {
  throw MalformedMessage(fmt::format("{}: {}", message_, text));
}

}  // namespace replicant::rpc
