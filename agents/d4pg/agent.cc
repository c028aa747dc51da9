#include "agents/d4pg/agent.h"

#include <fmt/format.h>

#include <string>

#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"
#include "agents/d4pg/policy.h"
#include "agents/d4pg/update.h"
#include "agents/observation_normalizer.h"
#include "base/error.h"
#include "engine/nn/optimizers.h"

namespace replicant::agents::d4pg {
namespace {

class D4pgAgent : public Agent {
 public:
  explicit D4pgAgent(const D4pgConfig& config) : config_(config) {}

  void Check(const LearningSpec& spec) const override {
    CheckSpec(config_.networks, spec);
    if (config_.observations.is_normalized()) {
      ObservationNormalizer::Check(spec.task);
    }
    if (config_.representation.horizon != spec.window) {
      throw ConfigError(
          fmt::format("agent.representation.horizon: {}, but the table's "
                      "window is {}; want "
                      "as many steps as the table's window has",
                      config_.representation.horizon, spec.window));
    }
    if (config_.behaviour_cloning.is_on() && !spec.has_prior) {
      throw ConfigError(
          fmt::format("agent.behaviour_cloning.weight: {}, but there is no "
                      "prior data; want replay.prior.folder, or 0",
                      config_.behaviour_cloning.weight));
    }
    static_cast<void>(SupportOf(spec));
  }

  int64_t NumWindowObservations(int64_t window) const override {
    const int64_t targets = config_.representation.num_targets();
    return targets > 0 ? std::min(targets, window) : window;
  }

  Output BuildPolicy(Graph& graph, const TaskSpec& task,
                     const PolicyOptions& options) const override {
    return d4pg::BuildPolicy(graph, config_, {.task = task}, options);
  }

  AgentUpdate BuildUpdate(nn::ReplicaContext& replica, const LearningSpec& spec,
                          const TransitionBatch& batch) const override {
    const Update update =
        d4pg::BuildUpdate(replica, config_, spec, SupportOf(spec), batch);
    AgentUpdate result{.losses = {{"critic_loss", update.critic_loss},
                                  {"policy_loss", update.policy_loss}},
                       .values = {{"value", update.value}},
                       .priority = update.priority,
                       .updates = update.updates,
                       .scalars = update.scalars};
    const auto append = [](const auto& from, auto* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(update.representation_losses, &result.losses);
    append(update.diagnostics, &result.losses);
    append(update.row_diagnostics, &result.values);
    return result;
  }

  std::vector<Output> BuildStart(Graph& graph,
                                 const LearningSpec& spec) const override {
    return d4pg::BuildStart(graph, config_, spec, SupportOf(spec).num_atoms);
  }

  std::optional<Misfit> FindMisfit(
      const LearningSpec& spec, std::span<const float> reward,
      std::span<const float> discount) const override {
    if (config_.distribution.range == Range::kRunning) return std::nullopt;
    return FindClipped(SupportOf(spec), reward, discount);
  }

  bool IsOfPolicy(std::string_view variable) const override {
    if (ObservationNormalizer::IsOfPolicy(variable)) return true;
    if (config_.average_decay > 0.0) {
      static const std::string scope = fmt::format("{}/", nn::kAverageScope);
      const bool is_average = variable.starts_with(scope);
      if (!is_average && config_.has_average_explorers) return false;
      if (is_average) variable.remove_prefix(scope.size());
    }
    return variable.starts_with("encoder/") || variable.starts_with("policy/");
  }

 private:
  Support SupportOf(const LearningSpec& spec) const {
    return MakeSupport(config_.distribution, spec.discount,
                       spec.task.largest_reward, spec.task.has_unit_rewards);
  }

  const D4pgConfig config_;
};

}  // namespace

std::shared_ptr<const Agent> MakeAgent(const D4pgConfig& config) {
  return std::make_shared<D4pgAgent>(config);
}

}  // namespace replicant::agents::d4pg
