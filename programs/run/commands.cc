#include "programs/run/commands.h"

#include <utility>

namespace replicant::programs {

Commands Commands::InFolder(std::filesystem::path folder) {
  return {{std::move(folder).string()}, /*is_folder=*/true};
}

Commands Commands::OfExecutable(std::vector<std::string> words) {
  return {std::move(words), /*is_folder=*/false};
}

std::vector<std::string> Commands::Of(std::string_view program) const {
  if (is_folder_) {
    return {(std::filesystem::path(words_.front()) / program).string()};
  }
  std::vector<std::string> words = words_;
  words.emplace_back(program);
  return words;
}

}  // namespace replicant::programs
