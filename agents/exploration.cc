#include "agents/exploration.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace replicant::agents {

ExplorationConfig ExplorationConfig::Read(config::Reader& reader) {
  ExplorationConfig c;
  reader.Field("sigma", &c.sigma, {0.0, 10.0},
               "standard deviation of the noise at the start, of actions in "
               "[-1, 1]");
  reader.Field("final_sigma", &c.final_sigma, {0.0, 10.0},
               "the same after decay_steps");
  reader.Field(
      "decay_steps", &c.decay_steps, {0, 1'000'000'000'000},
      "agent steps of the whole run over which it goes from one to the "
      "other; 0: it stays");
  reader.Field("actor_spread", &c.actor_spread, {1e-3, 1.0},
               "how many times the noise of the first actor the last one has; "
               "those between lie evenly in proportion");
  if (c.decay_steps == 0 && reader.Has("final_sigma")) {
    reader.Error("final_sigma", "is never reached with decay_steps 0");
  }
  return c;
}

double NoiseScale(const ExplorationConfig& config, int64_t steps, int64_t actor,
                  int64_t num_actors) {
  REPLICANT_CHECK(actor >= 0 && actor < num_actors && steps >= 0,
                  "actor {} of {} at step {}", actor, num_actors, steps);
  double sigma = config.sigma;
  if (config.decay_steps > 0) {
    const double done =
        std::min(1.0, static_cast<double>(steps) /
                          static_cast<double>(config.decay_steps));
    sigma += done * (config.final_sigma - config.sigma);
  }
  if (num_actors == 1) return sigma;
  const double place =
      static_cast<double>(actor) / static_cast<double>(num_actors - 1);
  return sigma * std::pow(config.actor_spread, place);
}

}  // namespace replicant::agents
