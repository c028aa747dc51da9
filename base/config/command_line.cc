#include "base/config/command_line.h"

#include <CLI/CLI.hpp>
#include <string_view>
#include <utility>

#include "base/config/document.h"
#include "base/config/problems.h"
#include "base/error.h"
#include "base/nearest.h"

namespace replicant::config {
namespace {

// The problem with an argument that no option took.
std::string ExtraProblem(const std::string& argument,
                         const std::vector<std::string>& known) {
  if (!argument.starts_with('-')) {
    return Quote(argument) +
           ": unexpected argument; hint: name a configuration with --config "
           "FILE";
  }
  const std::string option = argument.substr(0, argument.find('='));
  const std::string near = NearestName(option, known);
  return Printable(option) + ": unknown option; " +
         (near.empty() ? "hint: --help lists them"
                       : "did you mean '" + near + "'?");
}

}  // namespace

struct CommandLine::Parser {
  Parser(const std::string& program, const std::string& about)
      : app(about, program) {}

  CLI::App app;
  std::vector<std::string> names;
  bool wants_help = false;
  std::string docs_format;
  std::string config_file;
  std::string config_argument;  // the same without --config
  std::string version;
  bool wants_version = false;
  std::vector<std::string> overrides;
  std::vector<std::string> settings;  // by options of the program
  // options that replace --config
  struct ConfigOption {
    std::string name;
    const std::string* value;
    std::function<std::filesystem::path(const std::string&)> config_file;
  };
  std::vector<ConfigOption> config_options;

  // The file that the arguments name.
  std::filesystem::path ConfigFile() const;
};

std::filesystem::path CommandLine::Parser::ConfigFile() const {
  if (!config_file.empty() && !config_argument.empty()) {
    throw ConfigError("the configuration is given twice: --config " +
                      Quote(config_file) + " and " + Quote(config_argument) +
                      "; want one");
  }
  const std::string& given =
      config_file.empty() ? config_argument : config_file;
  std::string alternatives;
  for (const ConfigOption& option : config_options) {
    alternatives += " or " + option.name;
    if (option.value->empty()) continue;
    if (!given.empty()) {
      throw ConfigError("--config: not allowed with " + option.name +
                        ", which names its own configuration");
    }
    return option.config_file(*option.value);
  }
  if (given.empty()) {
    throw ConfigError("--config FILE" + alternatives +
                      " is missing; hint: --help lists the options, "
                      "--print_config_docs the keys of a configuration");
  }
  return given;
}

CommandLine::CommandLine(const std::string& program, const std::string& about)
    : parser_(std::make_unique<Parser>(program, about)) {
  CLI::App& app = parser_->app;
  // unknown options are judged in Parse(): they come before a missing one
  app.allow_extras();
  app.set_help_flag();
  app.add_flag("-h,--help", parser_->wants_help, "Print this help and end");
  app.add_option("--config", parser_->config_file, "Configuration file to use")
      ->type_name("FILE");
  // one value per option, so that it does not take the next argument
  app.add_option("--set", parser_->overrides,
                 "Override a value of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--print_config_docs{text}", parser_->docs_format,
               "Print every key of the configuration and end; "
               "=markdown or =yaml choose another form");
  parser_->names = {"--help", "--config", "--set", "--print_config_docs"};
}

CommandLine::~CommandLine() = default;

void CommandLine::AddFlag(const std::string& name, bool* value,
                          const std::string& help) {
  parser_->app.add_flag(name, *value, help);
  parser_->names.push_back(name);
}

void CommandLine::AddOption(const std::string& name, std::string* value,
                            const std::string& help) {
  parser_->app.add_option(name, *value, help)
      ->type_name("VALUE")
      ->capture_default_str();
  parser_->names.push_back(name);
}

void CommandLine::AddOption(const std::string& name,
                            std::optional<std::string>* value,
                            const std::string& help) {
  parser_->app
      .add_option_function<std::string>(
          name, [value](const std::string& given) { *value = given; }, help)
      ->type_name("[VALUE]")
      ->expected(0, 1)
      ->default_str("");
  parser_->names.push_back(name);
}

void CommandLine::AddSetting(const std::string& name, const std::string& key,
                             const std::string& help) {
  parser_->app
      .add_option_function<std::string>(
          name,
          [this, key](const std::string& given) {
            parser_->settings.push_back(Setting(key, given));
          },
          help)
      ->type_name("VALUE");
  parser_->names.push_back(name);
}

void CommandLine::AddConfigOption(
    const std::string& name, std::string* value, const std::string& help,
    std::function<std::filesystem::path(const std::string&)> config_file) {
  AddOption(name, value, help);
  parser_->config_options.push_back({name, value, std::move(config_file)});
}

void CommandLine::AddConfigArgument() {
  parser_->app
      .add_option("config_file", parser_->config_argument,
                  "Configuration file, as --config")
      ->type_name("FILE");
}

void CommandLine::AddVersion(const std::string& version) {
  parser_->version = version;
  AddFlag("--version", &parser_->wants_version, "Print the version and end");
}

Arguments CommandLine::Parse(int argc, const char* const* argv,
                             const Manual& manual) {
  CLI::App& app = parser_->app;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + "; hint: see --help");
  }
  std::string problems;
  for (const std::string& argument : app.remaining()) {
    problems +=
        (problems.empty() ? "" : "\n") + ExtraProblem(argument, parser_->names);
  }
  if (!problems.empty()) throw ConfigError(problems);

  Arguments arguments;
  if (parser_->wants_help) {
    arguments.text_to_print = app.help();
  } else if (parser_->wants_version) {
    arguments.text_to_print = app.get_name() + " " + parser_->version + "\n";
  } else if (parser_->docs_format == "text") {
    arguments.text_to_print = manual.text();
  } else if (parser_->docs_format == "markdown") {
    arguments.text_to_print = manual.markdown();
  } else if (parser_->docs_format == "yaml") {
    arguments.text_to_print = manual.reference_yaml();
  } else if (!parser_->docs_format.empty()) {
    throw ConfigError("--print_config_docs: " + Quote(parser_->docs_format) +
                      " is not one of text, markdown, yaml");
  } else {
    arguments.config_file = parser_->ConfigFile();
  }
  arguments.overrides = parser_->overrides;
  arguments.overrides.insert(arguments.overrides.end(),
                             parser_->settings.begin(),
                             parser_->settings.end());
  return arguments;
}

}  // namespace replicant::config
