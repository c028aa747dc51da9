#pragma once

#include <string>

// What the rendered runs have in common that run in containers.
namespace replicant::programs {

// Port at which hosts join the launcher.
inline constexpr int kJoinPort = 7100;
// The Control Suite's models in the image of scripts/container.
inline constexpr const char* kSuiteFolder = "/replicant/suite";

// The run's name as Kubernetes allows it for pods, with room for their
// suffixes: letters, digits and '-', a letter first, at most 44 bytes.
std::string ObjectName(const std::string& run);

}  // namespace replicant::programs
