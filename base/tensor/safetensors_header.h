#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/shape.h"

namespace replicant {

// One tensor as the header of a .safetensors file lists it.
struct SafetensorsInfo {
  std::string name;
  // the file's word, for example "F32"; may be unknown
  std::string dtype_name;
  Shape shape;
  // bytes [begin, end) of the data that follows the header
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Free texts, by name.
using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  // in the order of the data
  std::vector<SafetensorsInfo> tensors;
};

// Parses the JSON text of a header and checks it against the format and
// against `data_bytes`, the size of what follows it (see safetensors.h).
// Throws IoError, starting with `where`. O(n log n) in the number of tensors;
// nesting takes no memory, but for a bit per level in an unknown field.
SafetensorsHeader ParseSafetensorsHeader(std::string_view json,
                                         uint64_t data_bytes,
                                         const std::string& where);

// The inverse, padded with spaces to a multiple of 8 bytes. Throws
// InvalidArgument for text that is not UTF-8.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace replicant
