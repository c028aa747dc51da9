#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace replicant::testing {

struct FakeType {
  PJRT_Buffer_Type type = PJRT_Buffer_Type_F32;
  std::vector<int64_t> dims;
};

// The arguments and results of @main in a module of StableHLO text.
struct ModuleSignature {
  std::vector<FakeType> arguments;
  // by argument: the result that takes its memory (tf.aliasing_output)
  std::vector<std::optional<size_t>> aliased_results;
  std::vector<FakeType> results;
};

// Not set for a text without such a function.
std::optional<ModuleSignature> ParseSignature(const std::string& module);

size_t SizeInBytes(const FakeType& type);

}  // namespace replicant::testing
