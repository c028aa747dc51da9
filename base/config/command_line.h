#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config/manual.h"

namespace replicant::config {

// The command line of every program:
//
//   --config FILE                 the configuration
//   --set a.b=c                   overrides one of its values; may be repeated
//   --print_config_docs[=FORMAT]  prints every key: text, markdown or yaml
//   -h, --help
//
//   int main(int argc, char** argv) {
//     try {
//       config::CommandLine command_line("learner", "Trains a policy.");
//       const config::Arguments arguments =
//           command_line.Parse(argc, argv, config::Describe<RunConfig>());
//       if (!arguments.text_to_print.empty()) {
//         std::fputs(arguments.text_to_print.c_str(), stdout);
//         return 0;
//       }
//       const auto loaded = config::Load<RunConfig>(
//           config::Document::FromFile(arguments.config_file,
//                                      arguments.overrides));
//
// Thread-safety: one thread at a time.
struct Arguments {
  // If not empty, the program prints it on stdout and ends with success.
  std::string text_to_print;
  std::filesystem::path config_file;
  // for Document::FromFile
  std::vector<std::string> overrides;
};

class CommandLine {
 public:
  // `about` is a sentence for --help.
  CommandLine(const std::string& program, const std::string& about);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Add options of this program, "--name" and "--name VALUE". `*value` holds
  // the default; Parse() sets it, so it must outlive Parse().
  void AddFlag(const std::string& name, bool* value, const std::string& help);
  void AddOption(const std::string& name, std::string* value,
                 const std::string& help);
  // "--name [VALUE]": empty text if it is given without a value.
  void AddOption(const std::string& name, std::optional<std::string>* value,
                 const std::string& help);
  // "--name VALUE", short for "--set KEY=VALUE".
  void AddSetting(const std::string& name, const std::string& key,
                  const std::string& help);
  // "--name VALUE" replaces --config; the configuration file is then
  // `config_file(VALUE)`.
  void AddConfigOption(
      const std::string& name, std::string* value, const std::string& help,
      std::function<std::filesystem::path(const std::string&)> config_file);

  // The configuration file may stand without --config: "NAME FILE".
  void AddConfigArgument();

  // "--version" prints the program's name and `version`.
  void AddVersion(const std::string& version);

  // Throws ConfigError for an unknown option (naming the nearest one), an
  // argument without an option, an option without its value, and unless exactly
  // one of --config and the options that replace it is given. Passes on the
  // exceptions of `config_file`.
  Arguments Parse(int argc, const char* const* argv, const Manual& manual);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace replicant::config
