#pragma once

#include <filesystem>
#include <string>

// Finds checkpoints that users name by the folder of a run or of one
// checkpoint. `option` is the option that gave the name: "--checkpoint".
namespace replicant::programs {

inline constexpr const char* kCheckpointOption = "--checkpoint";

// Returns the folder of the run: `given`, or the run that holds the checkpoint
// `given`. Throws IoError, naming the allowed forms.
std::filesystem::path FindRun(const std::string& option,
                              const std::string& given);

// Returns the folder of the checkpoint: `given`, or the newest of the run
// `given`. Throws IoError.
std::filesystem::path FindCheckpoint(const std::string& option,
                                     const std::string& given);

// evaluation::FindBeginning() with the seconds of the run's newest checkpoint.
double BeginningOfRun(const std::filesystem::path& run_folder);

}  // namespace replicant::programs
