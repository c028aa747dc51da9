#pragma once

#include <string>

// What the rendered runs have in common that run in containers.
namespace replicant::programs {

// Port at which hosts join the launcher.
inline constexpr int kJoinPort = 7100;
// Ports of the parts of a run that have a pod or a node each.
inline constexpr int kReplayPort = 7101;
inline constexpr int kServerPort = 7103;
inline constexpr int kInferencePort = 7104;
// The Control Suite's models in the image of scripts/container.
inline constexpr const char* kSuiteFolder = "/replicant/suite";

// The run's name as Kubernetes allows it for pods, with room for their
// suffixes: letters, digits and '-', a letter first, at most 44 bytes.
std::string ObjectName(const std::string& run);

}  // namespace replicant::programs
