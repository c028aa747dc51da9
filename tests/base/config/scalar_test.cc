#include "base/config/scalar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

namespace replicant::config {
namespace {

using Kind = ScalarType::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ScalarType Integers(int64_t min, int64_t max) {
  ScalarType type;
  type.kind = Kind::kInteger;
  type.integers = {min, max};
  return type;
}

ScalarType Numbers(double min, double max) {
  ScalarType type;
  type.kind = Kind::kNumber;
  type.numbers = {min, max};
  return type;
}

ScalarType OfKind(Kind kind) {
  ScalarType type;
  type.kind = kind;
  return type;
}

Node Text(const std::string& text, bool is_quoted = false) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.text = text;
  node.is_quoted = is_quoted;
  return node;
}

// The value as YAML, or what is wrong.
std::string Parse(const std::string& text, const ScalarType& type) {
  const ParsedScalar parsed = ParseScalar(Text(text), type);
  return parsed.value ? ToYaml(*parsed.value) : parsed.problem + parsed.hint;
}

const ScalarType kAnyInteger = Integers(INT64_MIN, INT64_MAX);
const ScalarType kAnyNumber = Numbers(-kInfinity, kInfinity);

TEST(ScalarTest, ReadsIntegersThatAreExactlyWhole) {
  EXPECT_EQ(Parse("1000000", kAnyInteger), "1000000");
  EXPECT_EQ(Parse("1e6", kAnyInteger), "1000000");
  EXPECT_EQ(Parse("+2.5E+3", kAnyInteger), "2500");
  EXPECT_EQ(Parse("1200e-2", kAnyInteger), "12");
  EXPECT_EQ(Parse("7.0", kAnyInteger), "7");
  EXPECT_EQ(Parse("-0", kAnyInteger), "0");
  EXPECT_EQ(Parse("0e999999999999", kAnyInteger), "0");
  EXPECT_EQ(Parse("-9223372036854775808", kAnyInteger), "-9223372036854775808");
  EXPECT_EQ(Parse("9223372036854775807", kAnyInteger), "9223372036854775807");
}

TEST(ScalarTest, RefusesIntegersThatAreNotWholeOrDoNotFit) {
  EXPECT_EQ(Parse("1.5", kAnyInteger), "cannot read '1.5' as a whole number");
  EXPECT_EQ(Parse("1e-1", kAnyInteger), "cannot read '1e-1' as a whole number");
  for (const char* text : {"9223372036854775808", "-9223372036854775809",
                           "1e19", "1e999999999999", "99999999999999999999"}) {
    EXPECT_EQ(Parse(text, kAnyInteger),
              std::string(text) +
                  " does not fit into 64 bits; expected a whole number");
  }
  EXPECT_EQ(Parse("0", Integers(1, 64)), "0 is outside [1, 64]");
  EXPECT_EQ(Parse("0", Integers(1, INT64_MAX)), "0 is outside >= 1");
  EXPECT_EQ(Parse("ten", Integers(1, 64)),
            "cannot read 'ten' as a whole number in [1, 64]");
}

// What YAML 1.1 and YAML 1.2 read differently is never guessed.
TEST(ScalarTest, RefusesTheTrapsOfYaml11WithAHint) {
  EXPECT_EQ(Parse("010", kAnyInteger),
            "cannot read '010' as a whole number; hint: a leading 0 means "
            "octal to some readers, leave it out");
  EXPECT_EQ(Parse("1_000", kAnyInteger),
            "cannot read '1_000' as a whole number; hint: write 1000");
  EXPECT_EQ(Parse("0x10", kAnyInteger),
            "cannot read '0x10' as a whole number; hint: write it in decimal");
  EXPECT_EQ(Parse("1:30", kAnyInteger), "cannot read '1:30' as a whole number");
  // units, which no key takes
  const auto with_unit = [&](const std::string& text) {
    const std::string message = Parse(text, kAnyInteger);
    return message.substr(std::min(message.find("hint: "), message.size()));
  };
  EXPECT_EQ(with_unit("4GB"), "hint: write 4e9 (bytes)");
  EXPECT_EQ(with_unit("4 GiB"), "hint: write 4294967296 (bytes)");
  EXPECT_EQ(with_unit("1M"), "hint: write 1e6");
  EXPECT_EQ(with_unit("1.5k"), "hint: write 1500");
  EXPECT_EQ(with_unit("10min"), "hint: write 600 (seconds)");
  EXPECT_EQ(with_unit("2h"), "hint: write 7200 (seconds)");
  EXPECT_EQ(with_unit("200ms"), "hint: write 0.2 (seconds)");
  EXPECT_EQ(with_unit("3 apples"), "");
  EXPECT_EQ(with_unit("e3M"), "");
  EXPECT_EQ(Parse("2 ", kAnyInteger), "cannot read '2 ' as a whole number");
  EXPECT_EQ(Parse("inf", kAnyNumber),
            "cannot read 'inf' as a number; hint: write .inf");
  EXPECT_EQ(Parse("007.5", kAnyNumber),
            "cannot read '007.5' as a number; hint: a leading 0 means octal "
            "to some readers, leave it out");
  EXPECT_EQ(Parse("yes", OfKind(Kind::kBool)),
            "cannot read 'yes' as true or false; hint: write true");
  EXPECT_EQ(Parse("Off", OfKind(Kind::kBool)),
            "cannot read 'Off' as true or false; hint: write false");
  EXPECT_EQ(Parse("1", OfKind(Kind::kBool)),
            "cannot read '1' as true or false");
}

TEST(ScalarTest, ReadsNumbers) {
  EXPECT_EQ(Parse("3", kAnyNumber), "3.0");
  EXPECT_EQ(Parse("+.5", kAnyNumber), "0.5");
  EXPECT_EQ(Parse("-1e-3", kAnyNumber), "-0.001");
  EXPECT_EQ(Parse(".inf", kAnyNumber), ".inf");
  EXPECT_EQ(Parse("-.inf", kAnyNumber), "-.inf");
}

TEST(ScalarTest, RefusesNumbersThatNoDoubleHolds) {
  for (const char* text : {"1e999", "1e-999"}) {
    EXPECT_EQ(Parse(text, kAnyNumber),
              std::string(text) +
                  " is too large or too small for a double; expected a number");
  }
  EXPECT_EQ(Parse(".inf", Numbers(0.0, 1.0)), ".inf is outside [0, 1]");
  EXPECT_EQ(Parse(".nan", kAnyNumber), "cannot read '.nan' as a number");
  EXPECT_EQ(Parse("0.2e", Numbers(0.0, 1.0)),
            "cannot read '0.2e' as a number in [0, 1]");
  EXPECT_EQ(Parse("", kAnyNumber), "cannot read '' as a number");
}

TEST(ScalarTest, NamesTheKindOfNodeThatIsWrong) {
  Node node;
  EXPECT_EQ(ParseScalar(node, Integers(1, 2)).hint,
            "; hint: leave the key out for its default");
  EXPECT_EQ(ParseScalar(node, Integers(1, 2)).problem,
            "has no value; expected a whole number in [1, 2]");
  EXPECT_EQ(ParseScalar(node, OfKind(Kind::kText)).hint,
            "; hint: write \"\" for empty text");
  node.kind = Node::Kind::kList;
  EXPECT_EQ(ParseScalar(node, kAnyNumber).problem,
            "is a list; expected a number");
  node.kind = Node::Kind::kMap;
  EXPECT_EQ(ParseScalar(node, OfKind(Kind::kBool)).problem,
            "is a map; expected true or false");
  const ParsedScalar quoted =
      ParseScalar(Text("5", /*is_quoted=*/true), kAnyNumber);
  EXPECT_EQ(quoted.problem, "'5' is quoted and so is text; expected a number");
  EXPECT_EQ(quoted.hint, "; hint: remove the quotes");
  // without them it would be text, too
  const ParsedScalar unit =
      ParseScalar(Text("4GB", /*is_quoted=*/true), kAnyNumber);
  EXPECT_EQ(unit.problem, "'4GB' is quoted and so is text; expected a number");
  EXPECT_EQ(unit.hint, "; hint: write 4e9 (bytes)");
}

TEST(ScalarTest, OffersTheNearestName) {
  ScalarType type = OfKind(Kind::kName);
  type.names = {"info", "off"};
  EXPECT_EQ(Parse("off", type), "\"off\"");
  EXPECT_EQ(Parse("inof", type),
            "'inof' is not one of info, off; did you mean 'info'?");
  EXPECT_EQ(Parse("12345678", type), "'12345678' is not one of info, off");
}

// Catches a control sequence or a book in an error message.
TEST(ScalarTest, PrintsHostileTextSafely) {
  EXPECT_EQ(Parse("\x1b[31m", kAnyInteger),
            "cannot read '\\x1b[31m' as a whole number");
  EXPECT_EQ(Parse(std::string(1000, 'x'), kAnyInteger),
            "cannot read '" + std::string(80, 'x') + "...' as a whole number");
}

TEST(ScalarTest, QuotesTextThatAReaderCouldTakeForSomethingElse) {
  for (const char* text : {"actor-3", "runs/a.yaml", "/tmp/x", "_a"}) {
    EXPECT_EQ(TextToYaml(text), text);
  }
  for (const char* text :
       {"",    "no",  "Off",  "y",   "true", "null",       "Null", "~",
        "12",  "1e3", ".inf", "nan", "a: b", "a #b",       " a",   "- a",
        "[a]", "{a}", "*a",   "&a",  "!a",   "%a",         "@a",   "`a",
        "|",   ">",   "'",    "=",   "<<",   "2026-11-21", "a,b"}) {
    EXPECT_EQ(TextToYaml(text), "\"" + std::string(text) + "\"");
  }
  EXPECT_EQ(TextToYaml("a\"b\\c\n\t\x01"), "\"a\\\"b\\\\c\\n\\t\\x01\"");
}

// Property: any finite double is read back bit by bit.
TEST(ScalarTest, WritesDoublesThatReadBackExactly) {
  std::mt19937_64 rng(20190201);
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::bit_cast<double>(rng());
    if (!std::isfinite(value)) continue;
    const std::string text = ToYaml(Scalar(value));
    const ParsedScalar parsed = ParseScalar(Text(text), kAnyNumber);
    ASSERT_TRUE(parsed.value) << text << ": " << parsed.problem;
    ASSERT_EQ(std::bit_cast<uint64_t>(std::get<double>(*parsed.value)),
              std::bit_cast<uint64_t>(value))
        << text;
  }
  EXPECT_EQ(ToYaml(Scalar(0.1)), "0.1");
  EXPECT_EQ(ToYaml(Scalar(1e300)), "1e+300");
}

}  // namespace
}  // namespace replicant::config
