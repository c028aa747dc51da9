#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicant::programs {

// The command lines that start the programs of a run: this project's
// executables, or one executable of a user that contains all programs.
class Commands {
 public:
  // Each program is a separate executable in `folder`.
  static Commands InFolder(std::filesystem::path folder);
  // One executable: `words`, which begin with its path, take the name of the
  // program as their next argument.
  static Commands OfExecutable(std::vector<std::string> words);

  // The same programs at another path, on another host: a folder, or the
  // user's executable.
  Commands At(const std::filesystem::path& path) const {
    return {{path.string()}, is_folder_};
  }

  // Returns the first words of the command that starts `program`.
  std::vector<std::string> Of(std::string_view program) const;

 private:
  Commands(std::vector<std::string> words, bool is_folder)
      : words_(std::move(words)), is_folder_(is_folder) {}

  // the folder, or the first words of every command
  std::vector<std::string> words_;
  bool is_folder_;
};

}  // namespace replicant::programs
