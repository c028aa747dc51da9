#include "base/config/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/base/config/sample_config.h"

namespace replicant::config {
namespace {

using testing::Color;
using testing::HostConfig;
using testing::SampleConfig;

Loaded<SampleConfig> Read(const std::string& text,
                          const std::vector<std::string>& overrides = {}) {
  return Load<SampleConfig>(Document::FromText("run.yaml", text, overrides));
}

TEST(LoadTest, WritesEveryKeyWithTheValueInForce) {
  EXPECT_EQ(Read("small: 1e3\nmaybe_small: null\n"
                 "hosts: [{port: 1}, {address: no}]\nnamed_hosts: {no: {}}\n",
                 {"log.level=off"})
                .resolved_yaml,
            "flag: true\n"
            "small: 1000\n"
            "large: 1000000000000\n"
            "ratio: 0.1\n"
            "bound: 1.0\n"
            "name: \"run: #1\"\n"
            "color: green\n"
            "maybe_ratio: null\n"
            "maybe_small: null\n"
            "maybe_name: \"null\"\n"
            "maybe_color: null\n"
            "sizes: [32, 32]\n"
            "rates: []\n"
            "names: [a, \"no\", \"1e3\", \"\"]\n"
            "flags: [true, false]\n"
            "colors: [red]\n"
            "rate:\n"
            "  samples_per_insert: 32.0\n"
            "  error_buffer: 3200.0\n"
            "hosts:\n"
            "  - address: localhost\n"
            "    port: 1\n"
            "  - address: \"no\"\n"
            "    port: 80\n"
            "named_hosts:\n"
            "  \"no\":\n"
            "    address: localhost\n"
            "    port: 80\n"
            "log:\n"
            "  level: \"off\"\n"
            "  file: \"\"\n"
            "  console: true\n");
}

// A text of characters that YAML gives a meaning.
std::string RandomText(std::mt19937_64& rng) {
  static const std::vector<std::string> parts = {
      "a",  "0",  "1e3", ":",    ": ", " #", "-",    "- ", "'",  "\"",  "\\",
      "\n", "\t", "\r",  "\x01", "[",  "]",  "{",    "}",  ",",  "*",   "&",
      "!",  "|",  ">",   "%",    "@",  "`",  "null", "ä",  "日", "yes", " "};
  std::string text;
  for (size_t i = rng() % 6; i > 0; --i) text += parts[rng() % parts.size()];
  return text;
}

SampleConfig RandomConfig(std::mt19937_64& rng) {
  SampleConfig c;
  std::uniform_real_distribution<double> share(0.0, 1.0);
  c.flag = rng() % 2 == 0;
  c.small = static_cast<int>(rng() % 1'000'000);
  c.large = static_cast<int64_t>(rng());
  c.ratio = share(rng);
  c.bound = std::ldexp(share(rng), static_cast<int>(rng() % 2000) - 1000);
  c.name = RandomText(rng);
  c.color = rng() % 2 == 0 ? Color::kRed : Color::kGreen;
  if (rng() % 2 == 0) c.maybe_ratio = share(rng);
  if (rng() % 2 == 0) c.maybe_small = std::nullopt;
  if (rng() % 2 == 0) c.maybe_name = std::nullopt;
  if (rng() % 2 == 0) c.maybe_color = Color::kRed;
  c.sizes.assign(1 + rng() % 4, 1 + static_cast<int>(rng() % 4096));
  c.rates.assign(rng() % 4, share(rng) * 1e9);
  c.names.clear();
  for (size_t i = rng() % 9; i > 0; --i) c.names.push_back(RandomText(rng));
  c.flags.assign(rng() % 9, rng() % 2 == 0);
  c.colors.assign(rng() % 9, Color::kGreen);
  c.rate.samples_per_insert = 1e-3 + share(rng);
  c.rate.error_buffer = 2.0 + 1e9 * share(rng);
  for (size_t i = rng() % 5; i > 0; --i) {
    const HostConfig host{"h" + RandomText(rng), 1 + static_cast<int>(i)};
    c.hosts.push_back(host);
    c.named_hosts.emplace("n-" + std::to_string(i), host);
  }
  return c;
}

// The values of `c` as YAML, written by hand and not by the code under test:
// the text is quoted in YAML's other way, numbers have 17 digits.
class PlainWriter {
 public:
  explicit PlainWriter(const SampleConfig& c) {
    Add("flag", Text(c.flag));
    Add("small", std::to_string(c.small));
    Add("large", std::to_string(c.large));
    Add("ratio", Text(c.ratio));
    Add("bound", Text(c.bound));
    Add("name", Text(c.name));
    Add("color", Text(c.color));
    Add("maybe_ratio", Optional(c.maybe_ratio));
    Add("maybe_small", c.maybe_small ? std::to_string(*c.maybe_small) : "~");
    Add("maybe_name", Optional(c.maybe_name));
    Add("maybe_color", Optional(c.maybe_color));
    Add("sizes", List(c.sizes));
    Add("rates", List(c.rates));
    Add("names", List(c.names));
    Add("flags", List(c.flags));
    Add("colors", List(c.colors));
    Add("rate", "{samples_per_insert: " + Text(c.rate.samples_per_insert) +
                    ", error_buffer: " + Text(c.rate.error_buffer) + "}");
    Add("hosts", List(c.hosts));
    text_ += "named_hosts: {";
    for (const auto& [name, host] : c.named_hosts) {
      text_ += name + ": " + Text(host) + ", ";
    }
    text_ += "}\n";
  }

  const std::string& text() const { return text_; }

 private:
  void Add(const std::string& key, const std::string& value) {
    text_ += key + ": " + value + "\n";
  }

  static std::string Text(bool flag) { return flag ? "true" : "false"; }
  static std::string Text(int value) { return std::to_string(value); }
  static std::string Text(double value) {
    char buffer[64];
    std::snprintf(buffer, sizeof(buffer), "%.17g", value);
    return buffer;
  }
  static std::string Text(const std::string& value) {
    std::string out = "\"";
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\x%02x", byte);
      out += byte < 0x80 ? std::string(buffer) : std::string(1, c);
    }
    return out + "\"";
  }
  static std::string Text(Color color) {
    return color == Color::kRed ? "red" : "green";
  }
  static std::string Text(const HostConfig& host) {
    return "{address: " + Text(host.address) +
           ", port: " + std::to_string(host.port) + "}";
  }
  template <typename T>
  static std::string Optional(const std::optional<T>& value) {
    return value ? Text(*value) : "~";
  }
  template <typename T>
  static std::string List(const std::vector<T>& values) {
    std::string out = "[";
    for (const auto& value : values) out += Text(value) + ", ";
    return out + "]";
  }

  std::string text_;
};

// Property: what is written as YAML is read back equal, and is written again
// as the same text.
TEST(LoadTest, TheResolvedYamlReadsBackToTheSameValues) {
  std::mt19937_64 rng(20190201);
  for (int i = 0; i < 100; ++i) {
    const SampleConfig expected = RandomConfig(rng);
    const std::string text = PlainWriter(expected).text();
    SCOPED_TRACE(text);
    const Loaded<SampleConfig> first = Read(text);
    ASSERT_EQ(first.config, expected);
    const Loaded<SampleConfig> second = Read(first.resolved_yaml);
    ASSERT_EQ(second.config, expected) << first.resolved_yaml;
    ASSERT_EQ(second.resolved_yaml, first.resolved_yaml);
  }
}

// A section or a whole configuration that declares nothing.
struct EmptyConfig {
  static EmptyConfig Read(Reader& reader) {
    if (reader.record().path.empty()) {
      EmptyConfig section;
      std::vector<EmptyConfig> list;
      reader.Section("section", &section, "nothing");
      reader.Sections("list", &list, {0, 2}, "nothings");
    }
    return {};
  }
};

TEST(LoadTest, WritesSectionsWithoutKeys) {
  const auto read = [](const std::string& text) {
    return Load<EmptyConfig>(Document::FromText("run.yaml", text))
        .resolved_yaml;
  };
  EXPECT_EQ(read(""), "section: {}\nlist: []\n");
  EXPECT_EQ(read("list: [{}, {}]"), "section: {}\nlist:\n  - {}\n  - {}\n");
  EXPECT_EQ(read(read("list: [{}]")), "section: {}\nlist:\n  - {}\n");
  EXPECT_EQ(Describe<EmptyConfig>().reference_yaml(),
            "# nothing\nsection: {}\n\n"
            "# nothings (list of sections, number of elements [0, 2])\n"
            "list: []\n#   -\n");
}

}  // namespace
}  // namespace replicant::config
