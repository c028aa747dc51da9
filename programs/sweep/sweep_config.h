#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "programs/sweep/median_rule.h"

namespace replicant::programs {

// A sweep: one configuration, trained with several settings and seeds.
// docs/sweeps.md has every key.
struct SweepConfig {
  // Settings under a name: "a.b=c" as --set takes them.
  struct Variant {
    std::string name;
    std::vector<std::string> settings;

    static Variant Read(config::Reader& reader);
  };
  // Values of one key, each combined with the values of the others.
  struct Axis {
    std::string key;
    std::vector<std::string> values;

    static Axis Read(config::Reader& reader);
  };
  // A key with a random value between two bounds for each draw.
  enum class Scale { kLinear, kLog };
  struct Draw {
    std::string key;
    double low = 0.0;
    double high = 1.0;
    Scale scale = Scale::kLinear;
    bool is_integer = false;  // whole numbers, both bounds included

    static Draw Read(config::Reader& reader);
  };

  std::string config;  // relative to the file of the sweep
  std::string folder;  // empty: sweeps/NAME below the working folder
  std::vector<Variant> variants;
  std::vector<Axis> grid;
  std::vector<Draw> random;
  int64_t draws = 1;
  int64_t draw_seed = 1;
  std::vector<int64_t> seeds = {1};
  int64_t jobs = 1;  // runs at once
  MedianRule median_rule;

  static SweepConfig Read(config::Reader& reader);
};

// Settings of one run; runs that differ in their seed have the same.
struct SweepRun {
  std::string label;  // "lap, agent.tau=0.01", or "as configured"
  std::vector<std::string> settings;
  int64_t seed = 1;
};

// Returns every variant with every combination of the grid, every draw and
// every seed, nested in this order. A sweep gives the same runs each time.
std::vector<SweepRun> RunsOf(const SweepConfig& sweep);

}  // namespace replicant::programs
