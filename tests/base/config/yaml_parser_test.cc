#include "base/config/yaml_parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/error.h"

namespace replicant::config {
namespace {

using ::testing::StartsWith;

// Every problem of a text, as printed.
std::string ProblemsOf(const std::string& text) {
  Problems problems;
  const int file = problems.AddFile("f.yaml");
  ParseYaml(text, file, &problems);
  try {
    problems.ThrowIfAny();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Node Parse(const std::string& text) {
  Problems problems;
  const std::optional<Node> node =
      ParseYaml(text, problems.AddFile("f.yaml"), &problems);
  EXPECT_TRUE(node && problems.empty()) << ProblemsOf(text);
  return node.value_or(Node());
}

TEST(YamlParserTest, KeepsValuesAndPlaces) {
  const Node root = Parse("a: 1\nb:\n  - 'x'\n  - {c: [2]}\nd:\n");
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(root.Find("a")->value.text, "1");
  EXPECT_EQ(root.Find("a")->value.place, (Place{0, 1, 4}));
  EXPECT_EQ(root.Find("d")->value.kind, Node::Kind::kNull);
  EXPECT_EQ(root.Find("d")->value_place(), (Place{0, 5, 1}));
  const Node& list = root.Find("b")->value;
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_TRUE(list.items[0].is_quoted);
  const Node& inner = list.items[1].Find("c")->value;
  EXPECT_EQ(inner.items[0].text, "2");
  EXPECT_EQ(inner.items[0].place, (Place{0, 4, 10}));
}

TEST(YamlParserTest, TakesAnEmptyFileForAnEmptyMap) {
  for (const char* text : {"", "# nothing\n", "---\n", "{}", "\xef\xbb\xbf"}) {
    EXPECT_EQ(Parse(text).kind, Node::Kind::kMap) << text;
  }
}

// yaml-cpp keeps both values and says nothing.
TEST(YamlParserTest, ReportsEveryDuplicateKeyWithBothPlaces) {
  EXPECT_EQ(ProblemsOf("a: 1\nb:\n  - c: 1\n    c: 2\na: 3\n"),
            "f.yaml:4:5: b.0.c: duplicate key; first at f.yaml:3:5\n"
            "f.yaml:5:1: a: duplicate key; first at f.yaml:1:1");
}

TEST(YamlParserTest, ExpandsAliases) {
  const Node root = Parse("a: &x {b: 1}\nc: *x\n");
  EXPECT_EQ(root.Find("c")->value.Find("b")->value.text, "1");
  // the place is where the value really stands
  EXPECT_EQ(root.Find("c")->value.Find("b")->value.place, (Place{0, 1, 11}));
}

// Ten levels of ten aliases each would be 10^10 nodes.
TEST(YamlParserTest, BoundsTheExpansionOfAliases) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    text += fmt::format("a{0}: &a{0} [", i);
    for (int k = 0; k < 10; ++k) text += fmt::format("*a{}, ", i - 1);
    text += "]\n";
  }
  EXPECT_EQ(
      ProblemsOf(text),
      "f.yaml:5:10: the file's aliases expand to more than 4194304 bytes");
  // few nodes, but each with a long text
  std::string long_text = "a: &a " + std::string(100'000, 'x') + "\nb: [";
  for (int i = 0; i < 100; ++i) long_text += "*a, ";
  EXPECT_NE(ProblemsOf(long_text + "]").find("more than 4194304 bytes"),
            std::string::npos);
}

TEST(YamlParserTest, RefusesAnAliasWithinItself) {
  EXPECT_EQ(ProblemsOf("a: &x [1, *x]\n"),
            "f.yaml:1:11: an alias inside the value it stands for");
  // newer versions of yaml-cpp add its name
  EXPECT_THAT(
      ProblemsOf("a: *x\n"),
      StartsWith("f.yaml:1:4: YAML: the referenced anchor is not defined"));
}

TEST(YamlParserTest, BoundsTheDepth) {
  EXPECT_EQ(ProblemsOf(std::string(70, '[') + std::string(70, ']')),
            "f.yaml:1:65: more than 64 levels deep");
  // aliases must not get around it
  std::string text = "a0: &a0 [x]\n";
  for (int i = 1; i < 70; ++i) {
    text += fmt::format("a{0}: &a{0} [*a{1}]\n", i, i - 1);
  }
  EXPECT_NE(ProblemsOf(text).find("more than 64 levels deep"),
            std::string::npos);
}

TEST(YamlParserTest, BoundsTheSizeOfAFileAndOfAMap) {
  EXPECT_EQ(ProblemsOf(std::string(20'000'000, ' ')),
            "f.yaml:1:1: 20000000 bytes; at most 16777216 are read");
  std::string text;
  for (int i = 0; i <= 100'000; ++i) {
    text += "k" + std::to_string(i) + ": 1\n";
  }
  EXPECT_EQ(ProblemsOf(text),
            "f.yaml:100001:1: more than 100000 keys in one map");
}

TEST(YamlParserTest, RefusesWhatAConfigurationDoesNotNeed) {
  EXPECT_EQ(ProblemsOf("a: !!int 3\n"),
            "f.yaml:1:4: tag 'tag:yaml.org,2002:int': tags are not supported; "
            "hint: remove it");
  EXPECT_EQ(
      ProblemsOf("? [a]\n: 1\n"),
      "f.yaml:1:3: a key must be text, not a list or a map; hint: is a ']' "
      "or '}' missing?");
  EXPECT_EQ(ProblemsOf("~: 1\n"), "f.yaml:1:1: a key without text");
  EXPECT_EQ(ProblemsOf("a: &x y\n*x : 1\n"),
            "f.yaml:2:1: an alias cannot be a key");
  EXPECT_EQ(ProblemsOf("a: &x {b: 1}\nc: {<<: *x}\n"),
            "f.yaml:2:5: merge keys are not supported; hint: move the shared "
            "keys to their own file and name it with 'base:'");
  EXPECT_EQ(ProblemsOf("a: 1\n---\nb: 2\n"),
            "f.yaml:2:1: a second document; hint: remove the line '---' "
            "before it");
}

TEST(YamlParserTest, RefusesBytesThatAreNoText) {
  EXPECT_EQ(ProblemsOf("a: 1\nb: \xff\n"),
            "f.yaml:2:4: byte 0xff is not UTF-8 text");
  EXPECT_EQ(ProblemsOf("\xc0\xaf"), "f.yaml:1:1: byte 0xc0 is not UTF-8 text");
  EXPECT_EQ(ProblemsOf("\xed\xa0\x80"),
            "f.yaml:1:1: byte 0xed is not UTF-8 text");
  EXPECT_EQ(ProblemsOf("a: \x04"),
            "f.yaml:1:4: control character 0x04; hint: write it as \"\\x04\" "
            "in double quotes");
  EXPECT_EQ(Parse("a: \"\\x04\"").Find("a")->value.text, "\x04");
  EXPECT_EQ(Parse("a: Größe").Find("a")->value.text, "Größe");
}

TEST(YamlParserTest, NamesTabsInTheIndentation) {
  EXPECT_EQ(ProblemsOf("a:\n\tb: 3\n"),
            "f.yaml:2:1: YAML: a tab in the indentation; hint: use spaces");
  EXPECT_EQ(ProblemsOf("a:\n  b: 1\n  \tc: 3\n"),
            "f.yaml:3:1: YAML: a tab in the indentation; hint: use spaces");
}

TEST(YamlParserTest, ShowsThePlaceOfASyntaxError) {
  EXPECT_EQ(ProblemsOf("a: [1, 2\nb: 3\n"),
            "f.yaml:2:2: YAML: end of sequence flow not found");
}

}  // namespace
}  // namespace replicant::config
