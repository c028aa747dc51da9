#include "base/config/command_line.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/error.h"
#include "tests/base/config/sample_config.h"
#include "tests/support/message_of.h"

namespace replicant::config {
namespace {

using replicant::testing::MessageOf;
using testing::RateConfig;
using Overrides = std::vector<std::string>;

Arguments Parse(CommandLine& command_line, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "prog");
  return command_line.Parse(static_cast<int>(arguments.size()),
                            arguments.data(), Describe<RateConfig>());
}

Arguments Parse(const std::vector<const char*>& arguments) {
  CommandLine command_line("prog", "Does things.");
  return Parse(command_line, arguments);
}

std::string ProblemsOf(const std::vector<const char*>& arguments) {
  try {
    Parse(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CommandLineTest, ReturnsFileAndOverridesInOrder) {
  const Arguments arguments =
      Parse({"--config", "run.yaml", "--set", "a.b=[1, 2]", "--set=c=-1",
             "--set", "d={e: 'f g'}"});
  EXPECT_EQ(arguments.config_file, "run.yaml");
  EXPECT_EQ(arguments.overrides,
            (Overrides{"a.b=[1, 2]", "c=-1", "d={e: 'f g'}"}));
  EXPECT_EQ(arguments.text_to_print, "");
}

TEST(CommandLineTest, PrintsTheVersionWithoutAConfiguration) {
  CommandLine command_line("prog", "Does things.");
  command_line.AddVersion("1.2 (git abc)");
  EXPECT_EQ(Parse(command_line, {"--version"}).text_to_print,
            "prog 1.2 (git abc)\n");
}

TEST(CommandLineTest, TakesTheConfigurationAsAnArgumentWhereAllowed) {
  const auto parse = [](const std::vector<const char*>& arguments) {
    CommandLine command_line("prog", "Does things.");
    command_line.AddConfigArgument();
    return Parse(command_line, arguments).config_file;
  };
  EXPECT_EQ(parse({"run.yaml", "--set", "a=1"}), "run.yaml");
  EXPECT_EQ(parse({"--config", "run.yaml"}), "run.yaml");
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              parse({"run.yaml", "--config", "other.yaml"});
            }),
            "the configuration is given twice: --config 'other.yaml' and "
            "'run.yaml'; want one");
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              parse({"run.yaml", "other.yaml"});
            }),
            "'other.yaml': unexpected argument; hint: name a configuration "
            "with --config FILE");
}

// CLI11 alone would say that --config is missing.
TEST(CommandLineTest, NamesTheNearestOptionBeforeAMissingOne) {
  EXPECT_EQ(ProblemsOf({"--confg", "run.yaml", "--sett=a=b"}),
            "--confg: unknown option; did you mean '--config'?\n"
            "'run.yaml': unexpected argument; hint: name a configuration "
            "with --config FILE\n"
            "--sett: unknown option; did you mean '--set'?");
  EXPECT_EQ(ProblemsOf({"--verbose"}),
            "--verbose: unknown option; hint: --help lists them");
}

// A greedy --set would take the next argument for a second value.
TEST(CommandLineTest, ReportsWhatIsMissingOrTooMuch) {
  EXPECT_EQ(ProblemsOf({}),
            "--config FILE is missing; hint: --help lists the options, "
            "--print_config_docs the keys of a configuration");
  EXPECT_EQ(ProblemsOf({"--config", "a", "--set", "b=1", "c=1"}),
            "'c=1': unexpected argument; hint: name a configuration with "
            "--config FILE");
  EXPECT_EQ(ProblemsOf({"--config"}),
            "--config: 1 required FILE missing; hint: see --help");
}

TEST(CommandLineTest, PrintsHelpWithoutAConfiguration) {
  const std::string help = Parse({"--help"}).text_to_print;
  for (const char* part : {"Does things.", "--config FILE", "--set KEY=VALUE",
                           "--print_config_docs"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << " in\n" << help;
  }
}

TEST(CommandLineTest, PrintsTheManualInEachForm) {
  const Manual manual = Describe<RateConfig>();
  EXPECT_EQ(Parse({"--print_config_docs"}).text_to_print, manual.text());
  EXPECT_EQ(Parse({"--print_config_docs=markdown"}).text_to_print,
            manual.markdown());
  EXPECT_EQ(Parse({"--print_config_docs=yaml"}).text_to_print,
            manual.reference_yaml());
  EXPECT_EQ(ProblemsOf({"--print_config_docs=html"}),
            "--print_config_docs: 'html' is not one of text, markdown, yaml");
}

TEST(CommandLineTest, TakesTheOptionsOfOneProgram) {
  bool resume = false;
  std::string role = "main";
  CommandLine command_line("prog", "Does things.");
  command_line.AddFlag("--resume", &resume, "Go on");
  command_line.AddOption("--role", &role, "Who this is");
  Parse(command_line, {"--config", "a", "--resume", "--role", "actor"});
  EXPECT_TRUE(resume);
  EXPECT_EQ(role, "actor");
}

TEST(CommandLineTest, AnOptionIsShortForASetting) {
  CommandLine command_line("prog", "Does things.");
  command_line.AddSetting("--episodes", "evaluation.episodes", "How many");
  EXPECT_EQ(
      Parse(command_line, {"--episodes", "3", "--config", "a", "--set", "b=1"})
          .overrides,
      (Overrides{"b=1", "evaluation.episodes=3"}));
}

TEST(CommandLineTest, AnOptionMayHaveItsValueOrNot) {
  const auto parse = [](std::vector<const char*> arguments) {
    std::optional<std::string> video;
    CommandLine command_line("prog", "Does things.");
    command_line.AddOption("--video", &video, "Film it");
    arguments.insert(arguments.begin(), {"--config", "a"});
    Parse(command_line, arguments);
    return video;
  };
  EXPECT_EQ(parse({}), std::nullopt);
  EXPECT_EQ(parse({"--video"}), "");
  EXPECT_EQ(parse({"--video", "--set", "b=1"}), "");
  EXPECT_EQ(parse({"--video", "a.mp4"}), "a.mp4");
  EXPECT_EQ(parse({"--video=a.mp4", "--set", "b=1"}), "a.mp4");
}

TEST(CommandLineTest, AnOptionStandsForTheConfiguration) {
  const auto parse = [](const std::vector<const char*>& arguments) {
    std::string run;
    CommandLine command_line("prog", "Does things.");
    command_line.AddConfigOption(
        "--resume", &run, "Go on",
        [](const std::string& folder) { return folder + "/config.yaml"; });
    return Parse(command_line, arguments).config_file;
  };
  EXPECT_EQ(parse({"--resume", "x"}), "x/config.yaml");
  EXPECT_EQ(parse({"--resume=x"}), "x/config.yaml");
  EXPECT_EQ(parse({"--config", "a"}), "a");
  EXPECT_EQ(
      MessageOf<ConfigError>([&] {
        parse({"--config", "a", "--resume", "x"});
      }),
      "--config: not allowed with --resume, which names its own configuration");
  EXPECT_EQ(MessageOf<ConfigError>([&] { parse({}); }),
            "--config FILE or --resume is missing; hint: --help lists the "
            "options, --print_config_docs the keys of a configuration");
}

}  // namespace
}  // namespace replicant::config
