// Readers copy what the pages show: every YAML block is a configuration that
// loads, the errors are those that a program prints, and every link leads
// somewhere.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "actors/inference_protocol.h"
#include "base/check.h"
#include "base/config/document.h"
#include "base/error.h"
#include "base/fs.h"
#include "engine/runtime/parameters.h"
#include "fleet/protocol/heartbeat.h"
#include "programs/run/run_config.h"
#include "replay/format/protocol.h"
#include "replicator/comm/liveness_messages.h"
#include "replicator/parameter_server/parameter_protocol.h"

namespace replicant::programs {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kRoot = REPLICANT_SOURCE_DIR;

// A fenced block of a page.
struct Block {
  std::string info;  // what follows the opening fence: "yaml"
  std::string mark;  // the text of a "<!-- mark -->" line right above
  std::string text;
  int line = 0;  // of the page, 1-based, of the text's first line
};

struct Page {
  std::filesystem::path path;  // relative to the root
  std::vector<std::string> lines;
  std::vector<bool> is_code;  // of each line; fences are code
  std::vector<Block> blocks;
};

Page ReadPage(const std::filesystem::path& path) {
  Page page;
  page.path = path;
  std::istringstream text(ReadFile(kRoot / path));
  bool is_inside = false;
  for (std::string line; std::getline(text, line);) {
    const bool is_fence = line.starts_with("```");
    if (is_fence && !is_inside) {
      Block block;
      block.info = line.substr(3);
      block.line = static_cast<int>(page.lines.size()) + 2;
      if (!page.lines.empty() && page.lines.back().starts_with("<!-- ")) {
        const std::string& mark = page.lines.back();
        block.mark = mark.substr(5, mark.size() - 9);
      }
      page.blocks.push_back(block);
    } else if (is_inside && !is_fence) {
      page.blocks.back().text += line + "\n";
    }
    page.is_code.push_back(is_inside || is_fence);
    if (is_fence) is_inside = !is_inside;
    page.lines.push_back(line);
  }
  REPLICANT_CHECK(!is_inside, "{}: a block has no end", path.string());
  return page;
}

std::vector<Page> AllPages() {
  std::vector<Page> pages;
  const auto add = [&](const std::filesystem::path& path) {
    if (path.extension() == ".md") {
      pages.push_back(ReadPage(std::filesystem::relative(path, kRoot)));
    }
  };
  for (const auto& entry : std::filesystem::directory_iterator(kRoot)) {
    add(entry.path());
  }
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(kRoot / "docs")) {
    add(entry.path());
  }
  return pages;
}

const Block& MarkedBlock(const Page& page, std::string_view mark) {
  for (const Block& block : page.blocks) {
    if (block.mark == mark) return block;
  }
  REPLICANT_CHECK(false, "{}: no block {}", page.path.string(), mark);
}

// Reads `text` as a file called `name` in configs/, so that it finds its bases.
// Throws ConfigError.
RunConfig LoadText(const std::string& name, const std::string& text,
                   const std::vector<std::string>& overrides = {}) {
  Registry registry = Registry::BuiltIn();
  // the task of an example's own program
  registry.tasks.Add({.name = "example-see_saw",
                      .model = {},
                      .options = {},
                      .edit = {},
                      .make_task = {}});
  return LoadRunConfig(config::Document::FromFile(
                           name, overrides,
                           [&](const std::filesystem::path& path) {
                             return path == name
                                        ? text
                                        : ReadFile(kRoot / "configs" / path);
                           }),
                       registry)
      .config;
}

TEST(DocsTest, EveryYamlBlockLoadsAsARun) {
  int num_blocks = 0;
  for (const Page& page : AllPages()) {
    for (const Block& block : page.blocks) {
      if (block.info != "yaml") continue;
      ++num_blocks;
      try {
        LoadText("run.yaml", block.text);
      } catch (const Error& error) {
        ADD_FAILURE() << page.path.string() << ":" << block.line
                      << ": the block does not load; hint: line N below is "
                         "line N of the block\n"
                      << error.what();
      }
    }
  }
  // a change of the fences must not leave all of them out
  EXPECT_GE(num_blocks, 10);
}

TEST(DocsTest, AYamlBlockThatIsNotLoadedSaysWhy) {
  const std::regex reason("yaml \\(.+\\)");
  for (const Page& page : AllPages()) {
    for (const Block& block : page.blocks) {
      if (block.info == "yaml" || !block.info.starts_with("y")) continue;
      EXPECT_TRUE(std::regex_match(block.info, reason))
          << page.path.string() << ":" << block.line << ": ```" << block.info;
    }
  }
}

TEST(DocsTest, TheGoodExampleIsRead) {
  const Page page = ReadPage("docs/configuration.md");
  const RunConfig c = LoadText(
      "run.yaml", MarkedBlock(page, "good run.yaml").text, {"log.level=debug"});
  EXPECT_EQ(c.run.name, "my_run");
  EXPECT_EQ(c.replay.max_bytes, 2'000'000'000);
  EXPECT_EQ(c.task.name, "cartpole-swingup");
  EXPECT_EQ(c.log.level, LogLevel::kDebug);
}

TEST(DocsTest, TheBadExampleGivesTheErrorsOnThePage) {
  const Page page = ReadPage("docs/configuration.md");
  try {
    LoadText("run.yaml", MarkedBlock(page, "bad run.yaml").text,
             {"actors.count=many"});
    FAIL() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_EQ(MarkedBlock(page, "errors").text,
              std::string(error.what()) + "\n");
  }
}

TEST(DocsTest, TheManualOfTheLogSectionIsCurrent) {
  const std::string markdown =
      DescribeRunConfig(Registry::BuiltIn()).markdown();
  const size_t log = markdown.find("### `log`");
  ASSERT_NE(log, std::string::npos);
  EXPECT_THAT(ReadFile(kRoot / "docs/configuration.md"),
              HasSubstr(markdown.substr(log)));
}

// Would catch a key whose value is dropped without a word.
TEST(DocsTest, TheKeysThatAFleetSetsAreOnThePage) {
  const std::string page = ReadFile(kRoot / "docs/configuration.md");
  std::istringstream manual(DescribeRunConfig(Registry::BuiltIn()).markdown());
  int num_keys = 0;
  // | `float_rows` | bool | `false` | true, false | ...; a fleet sets it |
  for (std::string row; std::getline(manual, row);) {
    if (row.find("a fleet sets ") == std::string::npos) continue;
    EXPECT_THAT(page, HasSubstr(row.substr(2, row.find('`', 3) - 1)));
    ++num_keys;
  }
  EXPECT_GE(num_keys, 7);
}

// A user who has run scripts/train can type every command of the first pages.
TEST(DocsTest, ScriptsTrainBuildsThePrograms) {
  const std::string script = ReadFile(kRoot / "scripts/train");
  const std::regex program("build/release/bin/([a-z_-]+)");
  for (const char* name :
       {"README.md", "docs/quick_start.md", "docs/operations.md",
        "docs/configuration.md", "docs/evaluation.md", "docs/environments.md",
        "docs/train_your_task.md", "docs/images.md", "docs/export.md",
        "docs/replay.md", "docs/clusters.md", "docs/cuda.md"}) {
    const std::string text = ReadFile(kRoot / name);
    for (std::sregex_iterator match(text.begin(), text.end(), program), end;
         match != end; ++match) {
      EXPECT_THAT(script, HasSubstr((*match)[1].str() + "_main")) << name;
    }
  }
}

// A heading's anchor: lower case, blanks become hyphens, the rest of the
// punctuation goes.
std::string AnchorOf(std::string_view heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80) {
      anchor += static_cast<char>(std::tolower(byte));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

std::set<std::string> AnchorsOf(const Page& page) {
  std::set<std::string> anchors;
  for (size_t i = 0; i < page.lines.size(); ++i) {
    const std::string& line = page.lines[i];
    if (page.is_code[i] || !line.starts_with("#")) continue;
    anchors.insert(AnchorOf(line.substr(line.find_first_not_of("# "))));
  }
  return anchors;
}

TEST(DocsTest, EveryRelativeLinkLeadsToAFileAndAHeading) {
  const std::regex link(R"(\]\(([^)\s]+)\))");
  for (const Page& page : AllPages()) {
    for (size_t i = 0; i < page.lines.size(); ++i) {
      const std::string& line = page.lines[i];
      if (page.is_code[i]) continue;
      for (std::sregex_iterator match(line.begin(), line.end(), link), end;
           match != end; ++match) {
        const std::string target = (*match)[1];
        if (target.find("://") != std::string::npos) continue;
        const size_t hash = target.find('#');
        const std::string file = target.substr(0, hash);
        const std::filesystem::path path =
            file.empty() ? page.path
                         : (page.path.parent_path() / file).lexically_normal();
        const std::string where =
            fmt::format("{}:{}: link to {}", page.path.string(), i + 1, target);
        if (!std::filesystem::exists(kRoot / path)) {
          ADD_FAILURE() << where << ": no such file";
        } else if (hash != std::string::npos) {
          EXPECT_TRUE(
              AnchorsOf(ReadPage(path)).contains(target.substr(hash + 1)))
              << where << ": no such heading";
        }
      }
    }
  }
}

TEST(DocsTest, TheVersionsOfTheProtocolsAreCurrent) {
  EXPECT_THAT(
      ReadFile(kRoot / "VERSIONING.md"),
      HasSubstr(fmt::format(
          "| replay, supervision, inference, parameters, parameter server, "
          "liveness | {}, {}, {}, {}, {}, {}, with a hash",
          replay::ReplayProtocol().version,
          fleet::SupervisionProtocol().version,
          actors::InferenceProtocol().version, runtime::kParameterVersion,
          replicator::ParameterServerProtocol().version,
          comm::LivenessProtocol().version)));
}

TEST(DocsTest, EveryPageIsInTheTableOfContents) {
  const std::string contents = ReadFile(kRoot / "docs/README.md");
  for (const Page& page : AllPages()) {
    if (page.path.filename() == "README.md") continue;
    const std::string name =
        std::filesystem::relative(page.path, "docs").generic_string();
    EXPECT_THAT(contents, HasSubstr("(" + name + ")"));
  }
}

size_t NumCharacters(std::string_view line) {
  return static_cast<size_t>(std::count_if(
      line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(DocsTest, NoLineIsWiderThanAHundredColumns) {
  std::vector<std::string> wide;
  for (const Page& page : AllPages()) {
    for (size_t i = 0; i < page.lines.size(); ++i) {
      const std::string& line = page.lines[i];
      // tables, links and code are as wide as they are
      if (page.is_code[i] || line.starts_with("|") ||
          line.find("](") != std::string::npos) {
        continue;
      }
      if (NumCharacters(line) > 100) {
        wide.push_back(fmt::format("{}:{}", page.path.string(), i + 1));
      }
    }
  }
  EXPECT_THAT(wide, IsEmpty());
}

}  // namespace
}  // namespace replicant::programs
