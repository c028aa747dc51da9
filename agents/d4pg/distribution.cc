#include "agents/d4pg/distribution.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"

namespace replicant::agents::d4pg {
namespace {

// Accepts a bound that the user rounded to a few digits.
constexpr double kTolerance = 1e-3;

// The atoms z, [K].
graph::Output Atoms(graph::Graph& graph, const Support& support, DType dtype) {
  HostTensor z(dtype, Shape({support.num_atoms}));
  const double gap = (support.v_max - support.v_min) /
                     static_cast<double>(support.num_atoms - 1);
  const auto fill = [&]<typename T>(std::span<T> atoms) {
    double k = 0.0;
    for (T& atom : atoms) atom = static_cast<T>(support.v_min + gap * k++);
  };
  if (dtype == DType::kF64) {
    fill(z.MutableSpan<double>());
  } else {
    fill(z.MutableSpan<float>());
  }
  return graph.Constant(z.view());
}

}  // namespace

Support MakeSupport(const DistributionConfig& config, double discount,
                    double largest_reward, bool is_range_known) {
  if (!(discount >= 0.0 && discount < 1.0)) {
    throw ConfigError(fmt::format(
        "D4PG: want a discount in [0, 1), got {}; returns of endless episodes "
        "have no bound otherwise",
        discount));
  }
  if (config.range == Range::kRunning) largest_reward = 1.0;
  const double largest_return = largest_reward / (1.0 - discount);
  const Support support{.v_min = config.v_min.value_or(0.0),
                        .v_max = config.v_max.value_or(largest_return),
                        .num_atoms = config.num_atoms};
  if (!is_range_known) {
    if (support.v_min < support.v_max) return support;
    throw ConfigError(
        fmt::format("D4PG: distribution.v_min {} is not below v_max {}; hint: "
                    "give both for rewards that are not in [0, 1]",
                    support.v_min, support.v_max));
  }
  if (support.v_min > 0.0 ||
      support.v_max < largest_return * (1.0 - kTolerance) ||
      support.v_min >= support.v_max) {
    throw ConfigError(fmt::format(
        "D4PG: distribution.v_min {} and v_max {} cut the range of returns, "
        "[0, {:.6g}] for a largest reward of {} per agent step and discount "
        "{}; hint: leave them out, or widen them",
        support.v_min, support.v_max, largest_return, largest_reward,
        discount));
  }
  return support;
}

std::optional<Misfit> FindClipped(const Support& support,
                                  std::span<const float> reward,
                                  std::span<const float> discount) {
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -lowest;
  for (size_t b = 0; b < reward.size(); ++b) {
    // the return if every later step had this reward
    const double rest = 1.0 - static_cast<double>(discount[b]);
    const double value =
        static_cast<double>(reward[b]) / std::max(rest, kSmallestRest);
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  const double range = support.v_max - support.v_min;
  const double below = (support.v_min - lowest) / range;
  const double above = (highest - support.v_max) / range;
  if (below <= kTolerance && above <= kTolerance) return std::nullopt;
  std::vector<std::string> bounds;
  if (below > kTolerance)
    bounds.push_back(fmt::format("v_min <= {:.4g}", lowest));
  if (above > kTolerance)
    bounds.push_back(fmt::format("v_max >= {:.4g}", highest));
  return Misfit{
      .why = fmt::format(
          "the rewards seen, if they last, give returns from {:.4g} to {:.4g}; "
          "targets outside agent.distribution's v_min {:.4g} and v_max {:.4g} "
          "are clipped; hint: set agent.distribution.range: running, or "
          "agent.distribution.{}",
          lowest, highest, support.v_min, support.v_max,
          fmt::join(bounds, " and agent.distribution.")),
      .size = std::max(below, above)};
}

graph::Output ExpectedValue(graph::Output probabilities, const Support& support,
                            graph::CallSite site) {
  const graph::Graph::SiteScope scope(probabilities, site);
  const graph::Output atoms =
      Atoms(*probabilities.graph, support, probabilities.dtype());
  return graph::ReduceSum(graph::Mul(probabilities, atoms), {.axes = {1}});
}

}  // namespace replicant::agents::d4pg
