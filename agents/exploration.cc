#include "agents/exploration.h"

#include <algorithm>
#include <cmath>

namespace replicant::agents {

ExplorationConfig ExplorationConfig::Read(config::Reader& reader) {
  ExplorationConfig c;
  reader.Field("random_steps", &c.random_steps, {0, 1'000'000'000},
               "agent steps, of all actors together, with uniform random "
               "actions before the policy acts");
  reader.Field("initial_scale", &c.initial_scale, {0.0, 10.0},
               "initial standard deviation of the noise; 1 is half an "
               "action's range");
  reader.Field("final_scale", &c.final_scale, {0.0, 10.0},
               "standard deviation of the noise after decay_steps");
  reader.Field("initial_hold_steps", &c.initial_hold_steps, {1, 1000},
               "initial agent steps for which a draw of noise is kept; more "
               "than 1 finds rewards that single draws rarely reach");
  reader.Field("final_hold_steps", &c.final_hold_steps, {1, 1000},
               "agent steps for which a draw of noise is kept after "
               "decay_steps");
  reader.Field("decay_steps", &c.decay_steps, {0, 1'000'000'000},
               "agent steps, of all actors together, over which scale and hold "
               "change linearly; 0: final values from the start");
  reader.Field("spread", &c.spread, {1e-3, 1e3},
               "ratio of the last environment's scale to the first one's; "
               "those between are spaced geometrically");
  return c;
}

double ExplorationConfig::Scale(int64_t agent_steps, int64_t index,
                                int64_t num_environments) const {
  const double scale = Decayed(initial_scale, final_scale, agent_steps);
  if (num_environments < 2) return scale;
  return scale *
         std::pow(spread, static_cast<double>(index) /
                              static_cast<double>(num_environments - 1));
}

int64_t ExplorationConfig::HoldSteps(int64_t agent_steps) const {
  return std::llround(Decayed(static_cast<double>(initial_hold_steps),
                              static_cast<double>(final_hold_steps),
                              agent_steps));
}

double ExplorationConfig::Decayed(double initial, double final_value,
                                  int64_t agent_steps) const {
  const double share =
      decay_steps == 0 ? 1.0
                       : std::min(1.0, static_cast<double>(agent_steps) /
                                           static_cast<double>(decay_steps));
  return initial + share * (final_value - initial);
}

}  // namespace replicant::agents
