#include "base/config/manual.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "tests/base/config/sample_config.h"

namespace replicant::config {
namespace {

using testing::HostConfig;
using testing::RateConfig;
using testing::SampleConfig;

struct FleetConfig {
  int shards = 2;
  RateConfig rate;
  std::vector<HostConfig> hosts;
  bool operator==(const FleetConfig&) const = default;

  static FleetConfig Read(Reader& reader) {
    FleetConfig c;
    reader.Field("shards", &c.shards, {1, 64}, "number of replay processes");
    reader.Section("rate", &c.rate, "how fast items are sampled");
    reader.Sections("hosts", &c.hosts, {0, 4}, "where processes run");
    return c;
  }
};

TEST(ManualTest, TheTextShowsDefaultTypeRangeAndDoc) {
  EXPECT_EQ(Describe<FleetConfig>().text(),
            "\n"
            "  shards = 2    (integer, [1, 64])\n"
            "      number of replay processes\n"
            "\n"
            "rate\n"
            "  how fast items are sampled\n"
            "\n"
            "  rate.samples_per_insert = 32.0    (number, [0.001, 10000])\n"
            "      mean number of times one item is sampled\n"
            "\n"
            "  rate.error_buffer = 3200.0    (number, [0, 1000000000000])\n"
            "      allowed drift from the ratio, in samples\n"
            "\n"
            "hosts (list of sections, number of elements [0, 4])\n"
            "  where processes run\n"
            "\n"
            "hosts.N\n"
            "\n"
            "  hosts.N.address = localhost    (text)\n"
            "      name of the host\n"
            "\n"
            "  hosts.N.port = 80    (integer, [1, 65535])\n"
            "      port it listens on\n");
}

TEST(ManualTest, TheMarkdownHasATablePerSection) {
  EXPECT_EQ(
      Describe<FleetConfig>().markdown(),
      "\n"
      "| key | type | default | allowed | meaning |\n"
      "|---|---|---|---|---|\n"
      "| `shards` | integer | `2` | [1, 64] | number of replay processes |\n"
      "\n"
      "### `rate`\n"
      "\n"
      "how fast items are sampled.\n"
      "\n"
      "| key | type | default | allowed | meaning |\n"
      "|---|---|---|---|---|\n"
      "| `samples_per_insert` | number | `32.0` | [0.001, 10000] | mean number "
      "of times one item is sampled |\n"
      "| `error_buffer` | number | `3200.0` | [0, 1000000000000] | allowed "
      "drift from the ratio, in samples |\n"
      "\n"
      "### `hosts`\n"
      "\n"
      "where processes run (list of sections, number of elements [0, 4]).\n"
      "\n"
      "### `hosts.N`\n"
      "\n"
      "| key | type | default | allowed | meaning |\n"
      "|---|---|---|---|---|\n"
      "| `address` | text | `localhost` |  | name of the host |\n"
      "| `port` | integer | `80` | [1, 65535] | port it listens on |\n");
}

TEST(ManualTest, TheReferenceExplainsEveryKeyInAComment) {
  EXPECT_EQ(
      Describe<FleetConfig>().reference_yaml(),
      "# number of replay processes (integer, [1, 64])\n"
      "shards: 2\n"
      "\n"
      "# how fast items are sampled\n"
      "rate:\n"
      "  # mean number of times one item is sampled (number, [0.001, 10000])\n"
      "  samples_per_insert: 32.0\n"
      "  # allowed drift from the ratio, in samples (number, [0, "
      "1000000000000])\n"
      "  error_buffer: 3200.0\n"
      "\n"
      "# where processes run (list of sections, number of elements [0, 4])\n"
      "hosts: []\n"
      "#   -\n"
      "#     # name of the host (text)\n"
      "#     address: localhost\n"
      "#     # port it listens on (integer, [1, 65535])\n"
      "#     port: 80\n");
}

TEST(ManualTest, TheReferenceReadsBackToTheDefaults) {
  const std::string text = Describe<SampleConfig>().reference_yaml();
  const auto loaded =
      Load<SampleConfig>(Document::FromText("reference.yaml", text));
  EXPECT_EQ(loaded.config, SampleConfig());
  EXPECT_EQ(loaded.resolved_yaml, Load<SampleConfig>(Document()).resolved_yaml);
}

// The example of a list element must be right once its comment signs go.
TEST(ManualTest, TheExampleInTheReferenceIsYaml) {
  std::istringstream reference(Describe<FleetConfig>().reference_yaml());
  std::string text;
  for (std::string line; std::getline(reference, line);) {
    if (line == "hosts: []") line = "hosts:";
    if (line.starts_with("#  ")) line = line.substr(2);
    text += line + "\n";
  }
  FleetConfig expected;
  expected.hosts = {HostConfig()};
  EXPECT_EQ(Load<FleetConfig>(Document::FromText("f.yaml", text)).config,
            expected)
      << text;
}

}  // namespace
}  // namespace replicant::config
