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
  // `executable` takes the name of the program as its first argument.
  static Commands OfExecutable(std::filesystem::path executable);

  // The same programs at another path, on another host: a folder, or the
  // user's executable.
  Commands At(std::filesystem::path path) const {
    return {std::move(path), is_folder_};
  }

  // Returns the first words of the command that starts `program`.
  std::vector<std::string> Of(std::string_view program) const;

 private:
  Commands(std::filesystem::path path, bool is_folder)
      : path_(std::move(path)), is_folder_(is_folder) {}

  std::filesystem::path path_;
  bool is_folder_;
};

}  // namespace replicant::programs
