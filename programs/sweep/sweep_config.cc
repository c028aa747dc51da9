#include "programs/sweep/sweep_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

namespace replicant::programs {
namespace {

constexpr int64_t kMaxElements = 1000;

std::string Join(const std::string& label, const std::string& addition) {
  return label.empty() ? addition : label + ", " + addition;
}

// Every run with every one of some additions to it.
template <typename T, typename Add>
std::vector<SweepRun> Times(const std::vector<SweepRun>& runs,
                            const std::vector<T>& additions, const Add& add) {
  if (additions.empty()) return runs;
  std::vector<SweepRun> all;
  for (const SweepRun& run : runs) {
    for (const T& addition : additions) {
      add(addition, &all.emplace_back(run));
    }
  }
  return all;
}

// In (0, 1), of the same bits on every machine.
double UniformFrom(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
}

// "agent.tau=0.0123": four digits are enough for a search. "a.b=12345" of whole
// numbers: each one k has the numbers from k to k + 1.
std::string DrawFrom(const SweepConfig::Draw& draw, std::mt19937_64& random) {
  const double u = UniformFrom(random);
  const double end = draw.is_integer ? draw.high + 1.0 : draw.high;
  const double value = draw.scale == SweepConfig::Scale::kLog
                           ? draw.low * std::pow(end / draw.low, u)
                           : draw.low + (end - draw.low) * u;
  if (!draw.is_integer) return fmt::format("{}={:.4g}", draw.key, value);
  // rounding may reach the end
  const double whole = std::clamp(std::floor(value), draw.low, draw.high);
  return fmt::format("{}={}", draw.key, static_cast<int64_t>(whole));
}

// Whether it and the next one are exact as a double.
bool IsWhole(double number) {
  return std::floor(number) == number && std::abs(number) < 0x1p53;
}

// "a.b" of "a.b=c".
std::string KeyOf(const std::string& setting) {
  return setting.substr(0, setting.find('='));
}

// Refuses a key, given in `field`, that the sweep sets in every run.
void CheckKey(const std::string& key, const char* field,
              config::Reader* reader) {
  if (key == "run.seed") {
    reader->Error(field, "sets run.seed, as the sweep does; hint: use 'seeds'");
  }
  if (key == "run.dir") {
    reader->Error(field, "sets run.dir, as the sweep does; hint: use 'folder'");
  }
}

}  // namespace

SweepConfig::Variant SweepConfig::Variant::Read(config::Reader& reader) {
  Variant c;
  reader.Field("name", &c.name, "name of the variant in tables");
  reader.Field("set", &c.settings, {0, kMaxElements},
               "settings, KEY=VALUE as --set takes them");
  if (c.name.empty()) reader.Error("name", "is empty; want a name");
  for (const std::string& setting : c.settings) {
    CheckKey(KeyOf(setting), "set", &reader);
  }
  return c;
}

SweepConfig::Axis SweepConfig::Axis::Read(config::Reader& reader) {
  Axis c;
  reader.Field("key", &c.key, "dotted key of the configuration");
  reader.Field("values", &c.values, {0, kMaxElements}, "values of the key");
  if (c.key.empty()) reader.Error("key", "is empty; want a key");
  CheckKey(c.key, "key", &reader);
  if (c.values.empty()) reader.Error("values", "is empty; want values");
  if (std::set(c.values.begin(), c.values.end()).size() != c.values.size()) {
    reader.Error("values", "has a value twice");
  }
  return c;
}

SweepConfig::Draw SweepConfig::Draw::Read(config::Reader& reader) {
  Draw c;
  reader.Field("key", &c.key, "dotted key of the configuration");
  reader.Field("low", &c.low, {-1e300, 1e300}, "least value");
  reader.Field("high", &c.high, {-1e300, 1e300}, "largest value");
  reader.Field("scale", &c.scale,
               {{"linear", Scale::kLinear}, {"log", Scale::kLog}},
               "distribution between the two");
  reader.Field("integer", &c.is_integer,
               "whether the values are whole numbers, low and high included");
  if (c.key.empty()) reader.Error("key", "is empty; want a key");
  CheckKey(c.key, "key", &reader);
  if (c.low >= c.high) {
    reader.Error("high",
                 fmt::format("is {}; want more than low, {}", c.high, c.low));
  }
  if (c.scale == Scale::kLog && c.low <= 0.0) {
    reader.Error("low",
                 fmt::format("is {}; scale log wants more than 0", c.low));
  }
  if (c.is_integer && !(IsWhole(c.low) && IsWhole(c.high))) {
    reader.Error("integer",
                 fmt::format("true from low {} to high {}; want whole numbers "
                             "below 2^53",
                             c.low, c.high));
  }
  return c;
}

SweepConfig SweepConfig::Read(config::Reader& reader) {
  SweepConfig c;
  reader.Field("config", &c.config,
               "configuration of the runs, relative to this file");
  reader.Field("folder", &c.folder,
               "folder of the runs and the results; empty: sweeps/NAME below "
               "the working folder, with the name of this file");
  reader.Sections(
      "variants", &c.variants, {0, kMaxElements},
      "named settings; every one is combined with everything below");
  reader.Sections("grid", &c.grid, {0, kMaxElements},
                  "keys with values, of which every combination is trained");
  reader.Sections("random", &c.random, {0, kMaxElements},
                  "keys that get a random value in each draw");
  reader.Field("draws", &c.draws, {1, kMaxElements}, "number of draws");
  reader.Field("draw_seed", &c.draw_seed, {0, INT64_MAX}, "seed of the draws");
  reader.Field("seeds", &c.seeds, {0, INT64_MAX}, {1, kMaxElements},
               "run.seed, each in a separate run");
  reader.Field("jobs", &c.jobs, {1, kMaxElements}, "runs at once on this host");
  reader.Section("median_rule", &c.median_rule,
                 "stops runs that fall behind, by the median stopping rule");
  if (c.config.empty()) reader.Error("config", "is empty; want a file");
  if (std::set(c.seeds.begin(), c.seeds.end()).size() != c.seeds.size()) {
    reader.Error("seeds", "has a seed twice");
  }
  std::set<std::string> names;
  for (const Variant& variant : c.variants) {
    if (!names.insert(variant.name).second) {
      reader.Error("variants", fmt::format("has '{}' twice", variant.name));
    }
  }
  // labels would show every value of a key, and runs have the last one
  std::set<std::string> keys;
  const auto add = [&](const char* section, const std::string& key) {
    if (keys.insert(key).second) return;
    reader.Error(
        section,
        fmt::format("has {} again; want a key once in grid and random", key));
  };
  for (const Axis& axis : c.grid) add("grid", axis.key);
  for (const Draw& draw : c.random) add("random", draw.key);
  for (const Variant& variant : c.variants) {
    for (const std::string& setting : variant.settings) {
      if (!keys.contains(KeyOf(setting))) continue;
      reader.Error("variants",
                   fmt::format("'{}' sets {}, as grid or random does",
                               variant.name, KeyOf(setting)));
    }
  }
  return c;
}

std::vector<SweepRun> RunsOf(const SweepConfig& sweep) {
  std::vector<SweepRun> runs(1);
  runs = Times(runs, sweep.variants,
               [](const SweepConfig::Variant& variant, SweepRun* run) {
                 run->label = variant.name;
                 run->settings = variant.settings;
               });
  for (const SweepConfig::Axis& axis : sweep.grid) {
    runs =
        Times(runs, axis.values, [&](const std::string& value, SweepRun* run) {
          run->settings.push_back(axis.key + "=" + value);
          run->label = Join(run->label, run->settings.back());
        });
  }
  if (!sweep.random.empty()) {
    // every run meets the same draws
    std::mt19937_64 random(static_cast<uint64_t>(sweep.draw_seed));
    std::vector<std::vector<std::string>> draws(
        static_cast<size_t>(sweep.draws));
    for (auto& draw : draws) {
      for (const SweepConfig::Draw& key : sweep.random) {
        draw.push_back(DrawFrom(key, random));
      }
    }
    runs = Times(
        runs, draws, [](const std::vector<std::string>& draw, SweepRun* run) {
          run->settings.insert(run->settings.end(), draw.begin(), draw.end());
          run->label =
              Join(run->label, fmt::format("{}", fmt::join(draw, ", ")));
        });
  }
  for (SweepRun& run : runs) {
    if (run.label.empty()) run.label = "as configured";
  }
  return Times(runs, sweep.seeds,
               [](int64_t seed, SweepRun* run) { run->seed = seed; });
}

}  // namespace replicant::programs
