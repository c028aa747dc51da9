#include "replicator/strategy.h"

#include <fmt/format.h>

#include "base/error.h"

namespace replicant::replicator {

StrategyRegistry StrategyRegistry::BuiltIn() {
  StrategyRegistry registry;
  registry.strategies_ = {&Strategy::kSingle, &Strategy::kInGraph,
                          &Strategy::kBetweenGraph, &Strategy::kHogwild,
                          &Strategy::kParameterServer};
  return registry;
}

void StrategyRegistry::Add(const Strategy& strategy) {
  for (const Strategy* known : strategies_) {
    if (known->name == strategy.name) {
      throw InvalidArgument(fmt::format(
          "StrategyRegistry: there is a strategy '{}' already", strategy.name));
    }
  }
  if (strategy.replicas_of_group == nullptr || strategy.make == nullptr) {
    throw InvalidArgument(
        fmt::format("StrategyRegistry: strategy '{}' needs replicas_of_group "
                    "and make",
                    strategy.name));
  }
  strategies_.push_back(&strategy);
}

}  // namespace replicant::replicator
