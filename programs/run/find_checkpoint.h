#pragma once

#include <filesystem>
#include <string>

// Finds checkpoints that users name by the folder of a run or of one
// checkpoint. `option` is the option that gave the name: "--checkpoint".
namespace replicant::programs {

inline constexpr const char* kCheckpointOption = "--checkpoint";

// Which checkpoint of a run, as Python's Policy.load() says it.
struct WhichOption {
  static constexpr const char* kName = "--which";
  static constexpr const char* kHelp =
      "checkpoint of a run: newest, or best by its evaluations, which has the "
      "policy alone";
  static constexpr const char* kDefault = "newest";
};

// Returns the folder of the run: `given`, or the run that holds the checkpoint
// `given`. Throws IoError, naming the allowed forms.
std::filesystem::path FindRun(const std::string& option,
                              const std::string& given);

// Returns the folder of the checkpoint: `given`, or of the run `given` the
// newest or the best. Throws IoError, and ConfigError for another `which`.
std::filesystem::path FindCheckpoint(
    const std::string& option, const std::string& given,
    const std::string& which = WhichOption::kDefault);

// evaluation::FindBeginning() with the seconds of the run's newest checkpoint.
double BeginningOfRun(const std::filesystem::path& run_folder);

}  // namespace replicant::programs
