#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/tensor/dtype.h"
#include "base/tensor/tensor_view.h"

namespace replicant {

// An element type of .safetensors files.
struct SafetensorsType {
  std::string_view name;  // in a file: "F32"
  uint64_t bits = 0;      // of an element
  // Type in memory. A type that DType lacks becomes one that holds all its
  // values: F16 and F8_* kF32; I8, I16 and U16 kI32; U32 and U64 kI64 (a U64
  // over the range of I64 is an error). Empty: cannot be read.
  std::optional<DType> dtype = {};
};

// Returns null for a name that safetensors 0.8 does not know.
const SafetensorsType* FindSafetensorsType(std::string_view name);

// "F32, F64, BF16, ...": the types that can be read.
std::string ReadableSafetensorsTypes();

// The name of a type that is the same in memory and in a file.
std::string_view SafetensorsDTypeName(DType dtype);

// Converts the elements of a type that DType lacks to the type's `dtype`.
// `from` has as many elements as `to`. Throws IoError, "<where>: ...", for a
// value outside the range.
void ConvertFromSafetensors(const SafetensorsType& type,
                            std::span<const std::byte> from,
                            const MutableTensorView& to,
                            const std::string& where);

}  // namespace replicant
