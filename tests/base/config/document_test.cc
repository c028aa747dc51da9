#include "base/config/document.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/error.h"
#include "base/fs.h"
#include "tests/base/config/sample_config.h"

namespace replicant::config {
namespace {

using testing::SampleConfig;
using Files = std::map<std::string, std::string>;

Document FromFiles(const Files& files,
                   const std::vector<std::string>& overrides = {}) {
  return Document::FromFile(
      "run.yaml", overrides, [&files](const std::filesystem::path& path) {
        const auto file = files.find(path.string());
        if (file == files.end()) {
          throw IoError("open: " + path.string() + ": no such file");
        }
        return file->second;
      });
}

SampleConfig Read(const Files& files,
                  const std::vector<std::string>& overrides = {}) {
  return Load<SampleConfig>(FromFiles(files, overrides)).config;
}

std::string ProblemsOf(const Files& files,
                       const std::vector<std::string>& overrides = {}) {
  try {
    Read(files, overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(DocumentTest, MergesMapsAndReplacesScalarsAndLists) {
  const SampleConfig c = Read({
      {"run.yaml",
       "base: a/base.yaml\nrate: {error_buffer: 50}\nsizes: [1]\nsmall: 2\n"},
      {"a/base.yaml",
       "rate: {samples_per_insert: 4, error_buffer: 60}\n"
       "sizes: [7, 8]\nsmall: 1\nflag: false\n"},
  });
  EXPECT_EQ(c.rate.samples_per_insert, 4.0);
  EXPECT_EQ(c.rate.error_buffer, 50.0);
  EXPECT_EQ(c.sizes, std::vector<int>{1});
  EXPECT_EQ(c.small, 2);
  EXPECT_FALSE(c.flag);
}

// A base is found next to the file that names it; of several the last one wins.
TEST(DocumentTest, FindsBasesBesideTheFileThatNamesThem) {
  const SampleConfig c = Read({
      {"run.yaml", "base: [a/one.yaml, two.yaml]\n"},
      {"a/one.yaml", "base: ../common/c.yaml\nsmall: 1\n"},
      {"common/c.yaml", "ratio: 0.25\nsmall: 5\n"},
      {"two.yaml", "base: common/c.yaml\nname: two\n"},
  });
  EXPECT_EQ(c.ratio, 0.25);
  EXPECT_EQ(c.small, 5);
  EXPECT_EQ(c.name, "two");
}

TEST(DocumentTest, PointsIntoTheFileInWhichTheValueStands) {
  EXPECT_EQ(ProblemsOf({{"run.yaml", "base: b.yaml\nsmal: 1\n"},
                        {"b.yaml", "\nratio: 2\nrate:\n  error_buffer: 1\n"}}),
            "run.yaml:2:1: smal: unknown key; did you mean 'small'?\n"
            "b.yaml:2:8: ratio: 2 is outside [0, 1] (a share)\n"
            "b.yaml:4:17: rate.error_buffer: must be >= samples_per_insert");
}

TEST(DocumentTest, ShowsACycleOfBases) {
  EXPECT_EQ(ProblemsOf({{"run.yaml", "base: a.yaml\n"},
                        {"a.yaml", "\nbase: ./x/../run.yaml\n"}}),
            "a.yaml:2:7: base: a file cannot be its own base: run.yaml -> "
            "a.yaml -> run.yaml");
}

// Each file names the next one twice: 2^40 inclusions without a bound.
TEST(DocumentTest, BoundsTheNumberOfFiles) {
  Files files;
  for (int i = 0; i < 40; ++i) {
    files[i == 0 ? "run.yaml" : fmt::format("{}.yaml", i)] =
        fmt::format("base: [{0}.yaml, {0}.yaml]\n", i + 1);
  }
  EXPECT_NE(ProblemsOf(files).find("base: more than 32 files"),
            std::string::npos);
}

// Would catch a recipe of Python's package that a file cannot build on.
TEST(DocumentTest, SaysWhereThePackageHasARecipe) {
  const TemporaryFolder folder;
  for (const char* const recipe : {"walker.yaml", "distracting/easy.yaml"}) {
    MakeFolders((folder.path() / recipe).parent_path());
    AtomicWriteFile(folder.path() / recipe, "");
  }
  ::setenv("REPLICANT_RECIPES", folder.path().c_str(), /*overwrite=*/1);
  const std::string problems = ProblemsOf(
      {{"run.yaml", "base: [walker, distracting/easy.yaml, other]\n"}});
  ::unsetenv("REPLICANT_RECIPES");
  const std::string hint =
      ": no such file; hint: the package's recipe is " + folder.path().string();
  EXPECT_EQ(problems, "run.yaml:1:8: base: open: walker" + hint +
                          "/walker.yaml\n"
                          "run.yaml:1:16: base: open: distracting/easy.yaml" +
                          hint +
                          "/distracting/easy.yaml\n"
                          "run.yaml:1:39: base: open: other: no such file");
}

TEST(DocumentTest, ReportsFilesThatCannotBeRead) {
  EXPECT_EQ(ProblemsOf({{"run.yaml", "base: [no.yaml, {a: 1}, bad.yaml]\n"},
                        {"bad.yaml", "a: b: c\n"}}),
            "run.yaml:1:8: base: open: no.yaml: no such file\n"
            "run.yaml:1:17: base: is a map; expected the name of a file, or a "
            "list of names\n"
            "bad.yaml:1:5: YAML: illegal map value");
  EXPECT_EQ(ProblemsOf({}), "run.yaml:1:1: open: run.yaml: no such file");
  EXPECT_EQ(
      ProblemsOf({{"run.yaml", "- a\n"}}),
      "run.yaml:1:1: the file is a list; expected a map of keys and values");
}

TEST(DocumentTest, ReadsFilesFromTheDisk) {
  const TemporaryFolder folder("config");
  MakeFolders(folder.path() / "sub");
  AtomicWriteFile(folder.path() / "sub/run.yaml", "base: ../base.yaml\n");
  AtomicWriteFile(folder.path() / "base.yaml", "small: 42\n");
  const auto loaded = Load<SampleConfig>(
      Document::FromFile(folder.path() / "sub/run.yaml", {"name=x"}));
  EXPECT_EQ(loaded.config.small, 42);
  EXPECT_EQ(loaded.config.name, "x");
}

TEST(DocumentTest, ATextHasNoBase) {
  try {
    Document::FromText("t.yaml", "base: b.yaml");
    FAIL() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "t.yaml:1:7: base: open: b.yaml: a configuration given as "
                 "text has no base files");
  }
}

TEST(DocumentTest, AppliesOverridesInOrder) {
  const SampleConfig c = Read(
      {{"run.yaml", "small: 1\nhosts: [{port: 1}, {port: 2}]\n"}},
      {"small=2", "small=3", "rate.error_buffer=1e3", "sizes=[5, 6]",
       "hosts.1.port=9", "named_hosts.a={port: 7}", "named_hosts.a.address=h",
       "name=a=b", "names.0=", "names=[x]", "names.0=y", "maybe_small="});
  EXPECT_EQ(c.small, 3);
  EXPECT_EQ(c.rate.error_buffer, 1000.0);
  EXPECT_EQ(c.sizes, (std::vector<int>{5, 6}));
  EXPECT_EQ(c.hosts[0].port, 1);
  EXPECT_EQ(c.hosts[1].port, 9);
  EXPECT_EQ(c.named_hosts.at("a").port, 7);
  EXPECT_EQ(c.named_hosts.at("a").address, "h");
  EXPECT_EQ(c.name, "a=b");
  EXPECT_EQ(c.names, std::vector<std::string>{"y"});
  EXPECT_EQ(c.maybe_small, std::nullopt);
}

TEST(DocumentTest, NamesTheOverrideThatIsWrong) {
  EXPECT_EQ(
      ProblemsOf({{"run.yaml", "hosts: [{port: 1}]\nsmall: 5\n"}},
                 {"smal=1", "hosts.1.port=2", "ratio=[1", "small", "a..b=1",
                  "base=x.yaml", "rate.error_buffer=1", "small.x=1",
                  "sizes.0=1", "name='a'\n- b", "name=\xff", "name=a\x01"}),
      "--set smal=1: smal: unknown key; did you mean 'small'?\n"
      "--set hosts.1.port=2: hosts.1: the list there has 1 elements, counted "
      "from 0\n"
      "--set ratio=[1: a key must be text, not a list or a map; hint: is a ']' "
      "or '}' missing?\n"
      "--set small: expected KEY=VALUE, as in replay.shards=2\n"
      "--set a..b=1: expected KEY=VALUE, as in replay.shards=2\n"
      "--set base=x.yaml: base: is only allowed in a file\n"
      "--set rate.error_buffer=1: rate.error_buffer: must be >= "
      "samples_per_insert\n"
      "--set small.x=1: small: is a map; expected a whole number in [-5, "
      "1000000] (a count)\n"
      "--set sizes.0=1: sizes: is a map; expected a list (sizes of layers); "
      "hint: --set reaches only elements of a list that is in a file\n"
      "--set name='a'\\x0a- b: name: more than one value\n"
      "--set name=\xff: name: byte 0xff is not UTF-8 text\n"
      "--set name=a\\x01: name: control character 0x01; hint: write it as "
      "\"\\x01\" in double quotes");
}

// Texts that YAML would read as a comment, a map, a list, a number, no value or
// an error.
const std::vector<std::string>& TrickyTexts() {
  static const auto* const texts = new std::vector<std::string>{"exp #1",
                                                                "a: b",
                                                                "x ",
                                                                " x",
                                                                "null",
                                                                "~",
                                                                "Null",
                                                                "[8, 8]",
                                                                "[",
                                                                "{a: 1}",
                                                                "{",
                                                                "\"q\"",
                                                                "'q'",
                                                                "'",
                                                                "*a",
                                                                "&a",
                                                                "!t",
                                                                "| x",
                                                                "> x",
                                                                "- x",
                                                                "? x",
                                                                "@x",
                                                                "`x",
                                                                "%x",
                                                                "#",
                                                                ":",
                                                                "a:",
                                                                "1e3",
                                                                "010",
                                                                "yes",
                                                                "",
                                                                "\\x41",
                                                                "a\nb",
                                                                "a\tb",
                                                                "a\x01b",
                                                                "$HOME",
                                                                "@SEED@",
                                                                "a=b",
                                                                "---",
                                                                "...",
                                                                "\xc3\xa4",
                                                                "\xef\xbb\xbfx",
                                                                "\xe2\x80\xa8",
                                                                "\xc2\x85",
                                                                ".inf",
                                                                "a\rb",
                                                                "x\n",
                                                                "<<"};
  return *texts;
}

TEST(DocumentTest, ASettingIsReadAsItsText) {
  for (const std::string& text : TrickyTexts()) {
    const auto loaded = Load<SampleConfig>(
        FromFiles({{"run.yaml", ""}}, {Setting("name", text)}));
    EXPECT_EQ(loaded.config.name, text);
    // and so is the configuration that a run keeps
    EXPECT_EQ(Read({{"run.yaml", loaded.resolved_yaml}}).name, text);
  }
  EXPECT_EQ(Setting("a.b", "exp #1"), "a.b=exp #1");
}

// What a user types into a shell is the value, too.
TEST(DocumentTest, APlainOverrideIsTakenAsItStands) {
  for (const std::string& text : TrickyTexts()) {
    if (text.empty() || std::string("[{\"'").find(text[0]) < 4 ||
        text == "a\x01b") {
      continue;
    }
    EXPECT_EQ(Read({{"run.yaml", ""}}, {"name=" + text}).name, text);
  }
  // no value where the key allows that, and never a number
  EXPECT_EQ(
      Read({{"run.yaml", "maybe_small: 3"}}, {"maybe_small=null"}).maybe_small,
      std::nullopt);
  EXPECT_EQ(ProblemsOf({{"run.yaml", ""}}, {"small=null", "ratio=1 #2"}),
            "--set small=null: small: has no value; expected a whole number in "
            "[-5, 1000000] (a count); hint: leave the key out for its default\n"
            "--set ratio=1 #2: ratio: cannot read '1 #2' as a number in [0, 1] "
            "(a share)");
}

}  // namespace
}  // namespace replicant::config
