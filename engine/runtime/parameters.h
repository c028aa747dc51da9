#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "base/tensor/safetensors.h"
#include "engine/runtime/variable_store.h"

namespace replicant::runtime {

// Variables between processes: one program publishes them, others subscribe.
// The bytes are a .safetensors file, row-major, so that hosts of different
// instruction sets agree.

// The arguments of rpc::Protocol::FromTable(). Each topic is one set of
// variables; each value is one part, whose version is the training step.
inline constexpr const char* kParameterProtocol = "parameters";
inline constexpr uint32_t kParameterVersion = 1;
inline constexpr std::string_view kParameterTable =
    "publication: safetensors of the variables of the topic, by name";

// The named variables of the store. Throws InvalidArgument for an unknown name
// or a repeated one.
std::string EncodeVariables(const VariableStore& store,
                            const std::vector<std::string>& names,
                            const SafetensorsMetadata& metadata = {});

// How to treat a tensor that the store does not have.
enum class Surplus { kRefuse, kSkip };

// Every tensor of a .safetensors file, as variables of the store. Throws
// IoError for a tensor that the store lacks, unless such tensors are skipped,
// and for a tensor whose dtype or shape differs; `where` starts the message.
std::map<std::string, HostTensor> ReadVariables(
    const SafetensorsReader& reader, const std::string& where,
    const VariableStore& store, Surplus surplus = Surplus::kRefuse);

// Sets every variable that `bytes` hold. Throws IoError if the bytes are not a
// .safetensors file, and what ReadVariables() throws; the store is unchanged
// then.
void SetVariables(std::span<const std::byte> bytes, const std::string& where,
                  VariableStore& store);

}  // namespace replicant::runtime
