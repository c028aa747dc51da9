#include "base/config/reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

#include "base/config/load.h"
#include "base/error.h"
#include "tests/base/config/sample_config.h"
#include "tests/support/message_of.h"

namespace replicant::config {
namespace {

using testing::Color;
using testing::SampleConfig;

SampleConfig Read(const std::string& text) {
  return Load<SampleConfig>(Document::FromText("run.yaml", text)).config;
}

std::string ProblemsOf(const std::string& text) {
  try {
    Read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ReaderTest, AnEmptyFileGivesTheDefaults) {
  EXPECT_EQ(Read(""), SampleConfig());
  EXPECT_EQ(Load<SampleConfig>(Document()).config, SampleConfig());
}

TEST(ReaderTest, ReadsEveryKindOfField) {
  const SampleConfig c = Read(
      "flag: false\nsmall: 1e3\nlarge: -7\nratio: 1\nbound: -.inf\n"
      "name: 010\ncolor: red\nmaybe_ratio: 0.5\nmaybe_small: null\n"
      "maybe_name: ~\nmaybe_color: 'green'\nsizes: [1, 2, 3]\n"
      "rates: [1e3]\nnames: []\nflags: [false]\ncolors: [green, red]\n"
      "rate: {samples_per_insert: 2}\n"
      "hosts:\n- port: 1\n- address: b\n"
      "named_hosts: {learner-0: {port: 9}}\nlog: {console: false}\n");
  SampleConfig expected;
  expected.flag = false;
  expected.small = 1000;
  expected.large = -7;
  expected.ratio = 1.0;
  expected.bound = -std::numeric_limits<double>::infinity();
  expected.name = "010";
  expected.color = Color::kRed;
  expected.maybe_ratio = 0.5;
  expected.maybe_small = std::nullopt;
  expected.maybe_name = std::nullopt;
  expected.maybe_color = Color::kGreen;
  expected.sizes = {1, 2, 3};
  expected.rates = {1000.0};
  expected.names = {};
  expected.flags = {false};
  expected.colors = {Color::kGreen, Color::kRed};
  expected.rate.samples_per_insert = 2.0;
  expected.hosts = {{"localhost", 1}, {"b", 80}};
  expected.named_hosts = {{"learner-0", {"localhost", 9}}};
  expected.log_console = false;
  EXPECT_EQ(c, expected);
}

// One run must show everything that is wrong, in the order of the file.
TEST(ReaderTest, ReportsEveryProblemOfTheFileAtOnce) {
  EXPECT_EQ(
      ProblemsOf("small: 2000000\n"
                 "flag: yes\n"
                 "flag: no\n"
                 "colour: red\n"
                 "ratio: [1]\n"
                 "sizes: [32, 0, big]\n"
                 "rates: [1, 2, 3, 4]\n"
                 "names: one\n"
                 "maybe_small:\n"
                 "name:\n"
                 "rate:\n"
                 "  samples_per_insert: 64\n"
                 "  error_bufer: 10\n"
                 "  error_buffer: 10\n"
                 "hosts:\n"
                 "  - {address: ''}\n"
                 "  - {prot: 1}\n"
                 "  - 7\n"
                 "named_hosts: {a b: {}, c: {port: 0}}\n"
                 "log: debug\n"
                 "color: blue\n"
                 "zzzzzzzz: 1\n"),
      "run.yaml:1:8: small: 2000000 is outside [-5, 1000000] (a count)\n"
      "run.yaml:2:7: flag: cannot read 'yes' as true or false (a switch); "
      "hint: write true\n"
      "run.yaml:3:1: flag: duplicate key; first at run.yaml:2:1\n"
      "run.yaml:4:1: colour: unknown key; did you mean 'color'?\n"
      "run.yaml:5:8: ratio: is a list; expected a number in [0, 1] (a share)\n"
      "run.yaml:6:13: sizes.1: 0 is outside [1, 4096] (sizes of layers)\n"
      "run.yaml:6:16: sizes.2: cannot read 'big' as a whole number in [1, "
      "4096] (sizes of layers)\n"
      "run.yaml:7:8: rates: has 4 elements; the allowed number is [0, 3]\n"
      "run.yaml:8:8: names: is 'one'; expected a list (some texts); hint: "
      "write [one]\n"
      "run.yaml:10:1: name: has no value; expected text (a text); hint: write "
      "\"\" for empty text\n"
      "run.yaml:13:3: rate.error_bufer: unknown key; did you mean "
      "'error_buffer'?\n"
      "run.yaml:14:17: rate.error_buffer: must be >= samples_per_insert\n"
      "run.yaml:16:15: hosts.0.address: must not be empty: a host has a name\n"
      "run.yaml:17:6: hosts.1.prot: unknown key; did you mean 'port'?\n"
      "run.yaml:18:5: hosts.2: is '7'; expected a section of keys and values\n"
      "run.yaml:19:15: named_hosts: 'a b' is not a name; allowed: letters, "
      "digits, '_' and '-'\n"
      "run.yaml:19:34: named_hosts.c.port: 0 is outside [1, 65535] (port it "
      "listens on)\n"
      "run.yaml:20:6: log: is 'debug'; expected a section of keys and values\n"
      "run.yaml:21:8: color: 'blue' is not one of red, green (a color)\n"
      "run.yaml:22:1: zzzzzzzz: unknown key; the keys here are flag, small, "
      "large, ratio, bound, name, color, maybe_ratio, maybe_small, maybe_name, "
      "maybe_color, sizes, rates, names, flags, colors, rate, hosts, "
      "named_hosts, log, base");
}

TEST(ReaderTest, SaysHowAFileHasAKeyWithDots) {
  EXPECT_EQ(ProblemsOf("rate.samples_per_insert: 3\nrate.x: {y: 1}\n"),
            "run.yaml:1:1: rate.samples_per_insert: unknown key; hint: write "
            "rate: {samples_per_insert: 3}\n"
            "run.yaml:2:1: rate.x: unknown key; hint: write rate: {x: ...}");
}

TEST(ReaderTest, RefusesASectionWithoutKeys) {
  EXPECT_EQ(ProblemsOf("rate:\n"),
            "run.yaml:1:1: rate: has no keys; hint: leave it out for its "
            "defaults");
  EXPECT_EQ(ProblemsOf("hosts: {}\n"),
            "run.yaml:1:8: hosts: is a map; expected a list of sections (where "
            "processes run)");
  EXPECT_EQ(ProblemsOf("hosts: [{}, {}, {}, {}, {}]\n"),
            "run.yaml:1:8: hosts: has 5 elements; the allowed number is [0, "
            "4]");
}

// A rule over keys that are not in the file points at their section, and one
// whose key is wrong already says nothing.
TEST(ReaderTest, PlacesARuleAtItsKeyOrTheSectionAroundIt) {
  Reader reader(
      Document::FromText("run.yaml", "\nrate:\n  samples_per_insert: x\n"));
  Reader rate = reader.Section("rate", "rates");
  double samples_per_insert = 1.0;
  rate.Field("samples_per_insert", &samples_per_insert, {0, 1}, "a rate");
  EXPECT_TRUE(rate.Has("samples_per_insert"));
  EXPECT_FALSE(rate.Has("error_buffer"));
  rate.Error("samples_per_insert", "not shown");
  rate.Error("error_buffer", "is needed");
  reader.Error("rate.samples_per_insert", "not shown");
  reader.Error("name", "is needed too");
  try {
    reader.Finish();
    FAIL() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "run.yaml:2:1: rate.error_buffer: is needed\n"
                 "run.yaml:2:1: name: is needed too\n"
                 "run.yaml:3:23: rate.samples_per_insert: cannot read 'x' as a "
                 "number in [0, 1] (a rate)");
  }
}

TEST(ReaderDeathTest, AbortsOnABadDeclaration) {
  int value = 5;
  const auto reader = [] { return Reader(Document()); };
  EXPECT_DEATH(reader().Field("n", &value, {0, 4}, "x"),
               "default 5 of n is not allowed: \\[0, 4\\]");
  EXPECT_DEATH(reader().Field("No", &value, {0, 9}, "x"), "key 'No'");
  EXPECT_DEATH(
      {
        Reader twice = reader();
        twice.Field("n", &value, {0, 9}, "x");
        twice.Field("n", &value, {0, 9}, "x");
      },
      "n is declared twice");
  EXPECT_DEATH(
      {
        Reader root = reader();
        root.Section("s", "x").Finish();
      },
      "Finish\\(\\) of section s");
}

}  // namespace
}  // namespace replicant::config
