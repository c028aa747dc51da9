#include "programs/run/commands.h"

#include <utility>

namespace replicant::programs {

Commands Commands::InFolder(std::filesystem::path folder) {
  return {std::move(folder), /*is_folder=*/true};
}

Commands Commands::OfExecutable(std::filesystem::path executable) {
  return {std::move(executable), /*is_folder=*/false};
}

std::vector<std::string> Commands::Of(std::string_view program) const {
  if (is_folder_) return {(path_ / program).string()};
  return {path_.string(), std::string(program)};
}

}  // namespace replicant::programs
