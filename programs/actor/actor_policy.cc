#include "programs/actor/actor_policy.h"

#include <fmt/format.h>

#include <utility>

#include "actors/followed_policy.h"
#include "actors/policy_runner.h"
#include "actors/remote_policy.h"
#include "base/rpc/group_key.h"

namespace replicant::programs {
namespace {

class OwnPolicy : public ActorPolicy {
 public:
  OwnPolicy(const RunConfig& config, const agents::TaskSpec& task,
            int64_t index)
      : runner_(*config.MakeAgent(), task,
                {.backend = config.learner.replication.policy_backend(),
                 .num_environments = config.actors.environments,
                 .first_environment = index * config.actors.environments,
                 .seed = static_cast<uint64_t>(config.run.seed)}),
        followed_(config.learner.parameter_bind,
                  rpc::GroupKey::FromFile(KeyFileOf(config)), &runner_) {}

  actors::Policy& policy() override { return runner_; }
  void Poll(Clock::Duration timeout) override { followed_.Poll(timeout); }
  std::optional<uint64_t> version() const override {
    return followed_.version();
  }
  int64_t agent_steps() const override { return followed_.agent_steps(); }

 private:
  actors::PolicyRunner runner_;
  actors::FollowedPolicy followed_;
};

class ServedPolicy : public ActorPolicy {
 public:
  ServedPolicy(const RunConfig& config, const agents::TaskSpec& task,
               int64_t index, std::function<std::string()> find_server,
               std::function<bool()> is_over)
      : remote_(
            task,
            {.find_server = std::move(find_server),
             .curve = rpc::GroupKey::FromFile(KeyFileOf(config)).client_role(),
             .name = fmt::format("actor-{}", index),
             .num_environments = config.actors.environments,
             .is_over = std::move(is_over)}) {}

  actors::Policy& policy() override { return remote_; }
  // answers bring the version
  void Poll(Clock::Duration timeout) override {
    remote_.AwaitParameters(timeout);
  }
  std::optional<uint64_t> version() const override { return remote_.version(); }
  int64_t agent_steps() const override { return remote_.agent_steps(); }

 private:
  actors::RemotePolicy remote_;
};

}  // namespace

std::unique_ptr<ActorPolicy> MakeActorPolicy(
    const RunConfig& config, const agents::TaskSpec& task, int64_t index,
    std::function<std::string()> find_server, std::function<bool()> is_over) {
  if (config.actors.inference == actors::InferencePlace::kActor) {
    return std::make_unique<OwnPolicy>(config, task, index);
  }
  return std::make_unique<ServedPolicy>(
      config, task, index, std::move(find_server), std::move(is_over));
}

}  // namespace replicant::programs
