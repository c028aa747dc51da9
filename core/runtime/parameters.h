#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/variable_store.h"
#include "core/tensor/host_tensor.h"
#include "core/tensor/safetensors.h"

namespace replicant::runtime {

// Variables on their way between processes: what a learner publishes and
// actors take up. The bytes are a .safetensors file, row-major as everything
// that leaves a plan, so that hosts of different instruction sets agree.

// What rpc::Protocol::FromTable() takes: one topic a set of variables, each
// value one part; its version is the training step.
inline constexpr const char* kParameterProtocol = "parameters";
inline constexpr uint32_t kParameterVersion = 1;
inline constexpr std::string_view kParameterTable =
    "publication: safetensors of the variables of the topic, by name";
// The topic of the policy that actors act by.
inline constexpr const char* kPolicyTopic = "policy";

// The named variables of the store. Throws InvalidArgument for an unknown name
// or one that is there twice.
std::string EncodeVariables(const VariableStore& store,
                            const std::vector<std::string>& names,
                            const SafetensorsMetadata& metadata = {});

// What becomes of a tensor that the store has not.
enum class Surplus { kRefuse, kSkip };

// Every tensor of a .safetensors file, as variables of the store. Throws
// IoError if it holds one that the store has not, unless these are skipped, or
// has with another dtype or shape; `where` starts the message.
std::map<std::string, HostTensor> ReadVariables(
    const SafetensorsReader& reader, const std::string& where,
    const VariableStore& store, Surplus surplus = Surplus::kRefuse);

// Sets every variable that `bytes` hold. Throws IoError, leaving the store as
// it was, if they are no .safetensors file, and what ReadVariables() throws.
void SetVariables(std::span<const std::byte> bytes, const std::string& where,
                  VariableStore& store);

}  // namespace replicant::runtime
