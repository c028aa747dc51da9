#pragma once

#include <filesystem>
#include <string>

// Checkpoints as users name them: by the folder of a run, or of one checkpoint.
// `option` is where the name was given: "--checkpoint".
namespace replicant::programs {

inline constexpr const char* kCheckpointOption = "--checkpoint";

// Returns the folder of the run: `given`, or the one that holds the checkpoint
// `given`. Throws IoError, which says what is allowed.
std::filesystem::path FindRun(const std::string& option,
                              const std::string& given);

// Returns the folder of the checkpoint: `given`, or the newest of the run
// `given`. Throws IoError.
std::filesystem::path FindCheckpoint(const std::string& option,
                                     const std::string& given);

}  // namespace replicant::programs
