#include "base/metrics/json_lines.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::metrics {
namespace {

using std::chrono::seconds;

TEST(JsonObjectTest, KeysKeepTheOrderOfTheCalls) {
  const std::vector<double> returns = {1, 2.5};
  const JsonObject object = JsonObject()
                                .Add("step", 100)
                                .Add("loss", 0.1)
                                .Add("is_done", true)
                                .Add("task", "lqr-2")
                                .Add("returns", returns)
                                .Add("none", std::vector<double>());
  EXPECT_EQ(object.ToString(),
            R"({"step":100,"loss":0.1,"is_done":true,"task":"lqr-2",)"
            R"("returns":[1.0,2.5],"none":[]})");
  EXPECT_EQ(JsonObject().ToString(), "{}");
}

// Would catch whole numbers that go through a double.
TEST(JsonObjectTest, WholeNumbersAreExact) {
  EXPECT_EQ(JsonObject()
                .Add("a", std::numeric_limits<int64_t>::min())
                .Add("b", std::numeric_limits<uint64_t>::max())
                .Add("c", uint8_t{7})
                .ToString(),
            R"({"a":-9223372036854775808,"b":18446744073709551615,"c":7})");
}

TEST(JsonObjectTest, NumbersThatJsonLacksAreStrings) {
  const std::vector<double> values = {1, NAN};
  EXPECT_EQ(JsonObject()
                .Add("a", NAN)
                .Add("b", INFINITY)
                .Add("c", -INFINITY)
                .Add("d", values)
                .ToString(),
            R"({"a":"NaN","b":"Infinity","c":"-Infinity","d":[1.0,"NaN"]})");
}

// Would catch a newline that splits a line, and bytes that no reader decodes.
TEST(JsonObjectTest, TextIsEscapedAndValid) {
  EXPECT_EQ(JsonObject().Add("a\"b", "x\n\\\x01\xFFé").ToString(),
            "{\"a\\\"b\":\"x\\n\\\\\\u0001\xEF\xBF\xBDé\"}");
}

TEST(JsonObjectDeathTest, AKeyAddedTwiceAborts) {
  EXPECT_DEATH(JsonObject().Add("a", 1).Add("a", 2),
               "JSON key \"a\" is added twice");
}

class JsonLinesWriterTest : public ::testing::Test {
 protected:
  std::string MessageOf(const JsonLinesOptions& options) {
    try {
      JsonLinesWriter writer(options, clock_);
    } catch (const Error& e) {
      return e.what();
    }
    return "no Error";
  }

  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
  FakeClock clock_;
};

TEST_F(JsonLinesWriterTest, LinesReachTheFileAfterTheInterval) {
  JsonLinesWriter writer({path_, seconds(10)}, clock_);
  writer.Write(JsonObject().Add("step", 1));
  clock_.Advance(seconds(9));
  writer.Write(JsonObject().Add("step", 2));
  EXPECT_EQ(ReadFile(path_), "");
  clock_.Advance(seconds(1));
  writer.Write(JsonObject().Add("step", 3));
  EXPECT_EQ(ReadFile(path_), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  writer.Write(JsonObject().Add("step", 4));
  EXPECT_EQ(ReadFile(path_), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  writer.Flush();
  EXPECT_EQ(ReadFile(path_),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
}

TEST_F(JsonLinesWriterTest, ARestartedRunGoesOnInTheSameFile) {
  JsonLinesWriter({path_}, clock_).Write(JsonObject().Add("step", 1));
  JsonLinesWriter({path_}, clock_).Write(JsonObject().Add("step", 2));
  EXPECT_EQ(ReadFile(path_), "{\"step\":1}\n{\"step\":2}\n");
}

// A file that a crash cut at every byte: would catch a new line that is glued
// to the torn one, which spoils both.
TEST_F(JsonLinesWriterTest, ATornLineIsCutOff) {
  const std::string whole = "{\"step\":1}\n";
  const std::string torn = "{\"step\":2}";
  for (const std::string& before : {std::string(), whole}) {
    for (size_t size = 0; size <= torn.size(); ++size) {
      AtomicWriteFile(path_, before + torn.substr(0, size));
      JsonLinesWriter({path_}, clock_).Write(JsonObject().Add("step", 3));
      EXPECT_EQ(ReadFile(path_), before + "{\"step\":3}\n") << size;
    }
  }
}

TEST_F(JsonLinesWriterTest, AFileOfAnotherKindIsLeftAlone) {
  const std::string hint =
      ": the file does not end with a line of JSON; hint: name another file";
  const std::string text = "a: yaml\nb: file";
  AtomicWriteFile(path_, text);
  EXPECT_EQ(MessageOf({path_}), path_.string() + hint);
  EXPECT_EQ(ReadFile(path_), text);

  // longer than any line of ours
  const std::string huge = std::string(size_t{1} << 20, '{') + "{{";
  AtomicWriteFile(path_, huge);
  EXPECT_EQ(MessageOf({path_}), path_.string() + hint);
  EXPECT_EQ(std::filesystem::file_size(path_), huge.size());
}

TEST_F(JsonLinesWriterTest, BadOptionsAndPlacesAreNamed) {
  EXPECT_EQ(MessageOf({path_, seconds(-1)}),
            "JsonLinesWriter: flush_interval must be >= 0, got -1000000000 ns");
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(MessageOf({folder_.path()}),
            "open: " + folder_.path().string() + ": Is a directory");
}

TEST_F(JsonLinesWriterTest, ALineTooLongIsRefusedAndTheRestGoesOn) {
  JsonLinesWriter writer({path_}, clock_);
  try {
    writer.Write(JsonObject().Add("a", std::string(size_t{1} << 20, 'x')));
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.what(),
              path_.string() + ": a line may have 1048576 bytes, got 1048585");
  }
  writer.Write(JsonObject().Add("a", 1));
  writer.Flush();
  EXPECT_EQ(ReadFile(path_), "{\"a\":1}\n");
}

}  // namespace
}  // namespace replicant::metrics
