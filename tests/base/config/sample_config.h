#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config/log_config.h"
#include "base/config/reader.h"

namespace replicant::config::testing {

enum class Color { kRed, kGreen };

// An element of a list or map of sections.
struct HostConfig {
  std::string address = "localhost";
  int port = 80;
  bool operator==(const HostConfig&) const = default;

  static HostConfig Read(Reader& reader) {
    HostConfig c;
    reader.Field("address", &c.address, "name of the host");
    reader.Field("port", &c.port, {1, 65535}, "port it listens on");
    if (c.address.empty()) {
      reader.Error("address", "must not be empty: a host has a name");
    }
    return c;
  }
};

// A section with a rule over two keys.
struct RateConfig {
  double samples_per_insert = 32.0;
  double error_buffer = 3200.0;
  bool operator==(const RateConfig&) const = default;

  static RateConfig Read(Reader& reader) {
    RateConfig c;
    reader.Field("samples_per_insert", &c.samples_per_insert, {1e-3, 1e4},
                 "mean number of times one item is sampled");
    reader.Field("error_buffer", &c.error_buffer, {0.0, 1e12},
                 "allowed drift from the ratio, in samples");
    if (c.error_buffer < c.samples_per_insert) {
      reader.Error("error_buffer", "must be >= samples_per_insert");
    }
    return c;
  }
};

// Every kind of field.
struct SampleConfig {
  bool flag = true;
  int small = 3;
  int64_t large = 1'000'000'000'000;
  double ratio = 0.1;
  double bound = 1.0;
  std::string name = "run: #1";
  Color color = Color::kGreen;
  std::optional<double> maybe_ratio;
  std::optional<int> maybe_small = 7;
  std::optional<std::string> maybe_name = "null";
  std::optional<Color> maybe_color;
  std::vector<int> sizes = {32, 32};
  std::vector<double> rates;
  std::vector<std::string> names = {"a", "no", "1e3", ""};
  std::vector<bool> flags = {true, false};
  std::vector<Color> colors = {Color::kRed};
  RateConfig rate;
  std::vector<HostConfig> hosts;
  std::map<std::string, HostConfig> named_hosts;
  bool log_console = true;
  bool operator==(const SampleConfig&) const = default;

  static SampleConfig Read(Reader& reader) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    SampleConfig c;
    reader.Field("flag", &c.flag, "a switch");
    reader.Field("small", &c.small, {-5, 1'000'000}, "a count");
    reader.Field("large", &c.large, {INT64_MIN, INT64_MAX}, "any integer");
    reader.Field("ratio", &c.ratio, {0.0, 1.0}, "a share");
    reader.Field("bound", &c.bound, {-kInfinity, kInfinity}, "any number");
    reader.Field("name", &c.name, "a text");
    reader.Field("color", &c.color,
                 {{"red", Color::kRed}, {"green", Color::kGreen}}, "a color");
    reader.Field("maybe_ratio", &c.maybe_ratio, {0.0, 1.0}, "a share or none");
    reader.Field("maybe_small", &c.maybe_small, {0, 9}, "a digit or none");
    reader.Field("maybe_name", &c.maybe_name, "a text or none");
    reader.Field("maybe_color", &c.maybe_color,
                 {{"red", Color::kRed}, {"green", Color::kGreen}},
                 "a color or none");
    reader.Field("sizes", &c.sizes, {1, 4096}, {1, 4}, "sizes of layers");
    reader.Field("rates", &c.rates, {0.0, 1e9}, {0, 3}, "rates in Hz");
    reader.Field("names", &c.names, {0, 8}, "some texts");
    reader.Field("flags", &c.flags, {0, 8}, "some switches");
    reader.Field("colors", &c.colors,
                 {{"red", Color::kRed}, {"green", Color::kGreen}}, {0, 8},
                 "some colors");
    reader.Section("rate", &c.rate, "how fast items are sampled");
    reader.Sections("hosts", &c.hosts, {0, 4}, "where processes run");
    reader.Sections("named_hosts", &c.named_hosts, {0, 4}, "hosts by role");
    c.log_console = ReadLogOptions(reader).console;
    return c;
  }
};

}  // namespace replicant::config::testing
