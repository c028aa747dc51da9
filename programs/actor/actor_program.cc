#include "programs/actor/actor_program.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/actor.h"
#include "base/clock.h"
#include "base/file_limit.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "programs/actor/actor_policy.h"
#include "programs/actor/inference_role.h"
#include "programs/run/check_run.h"
#include "programs/run/role_endpoint.h"
#include "programs/run/step_shape.h"
#include "replay/client/sharded_writer.h"

namespace replicant::programs {
namespace {

using actors::Actor;

using namespace std::chrono_literals;

// Files that an actor has open for one environment's writer, and besides.
constexpr int64_t kFilesOfWriter = 12;
constexpr int64_t kOtherFiles = 100;

// Returns where the random streams of an incarnation begin, far from the
// streams of earlier incarnations.
int64_t FirstPosition(uint32_t incarnation) {
  return (int64_t{incarnation} - 1) << 31;
}

// The writers that take the steps of an actor's environments to the replay, one
// for each.
class Writers {
 public:
  Writers(const RunConfig& config, const agents::TaskSpec& task, int64_t index);

  std::vector<replay::StepSink*> sinks() const;
  // Sums over all.
  double WaitedSeconds() const;
  int64_t AcknowledgedSteps() const;
  // Ends every wait for the replay, from any thread.
  void StopWaiting();
  // Sends the remaining steps, and closes. Nobody learns from steps that the
  // rate limiter holds back for longer.
  void Drain();

 private:
  std::vector<std::unique_ptr<replay::ShardedWriter>> writers_;
};

Writers::Writers(const RunConfig& config, const agents::TaskSpec& task,
                 int64_t index) {
  const int64_t num_environments = config.actors.environments;
  for (int64_t e = 0; e < num_environments; ++e) {
    replay::StepWriterOptions writer;
    writer.curve = ReplayClientRole(config);
    writer.name = fmt::format("actor-{}/{}", index, e);
    writer.shape = StepShapeOf(task);
    writer.group_steps = config.actors.group_steps;
    writer.codec = config.actors.codec;
    writer.queue_groups = config.actors.queue_groups;
    writer.append_timeout = FromSeconds(config.actors.append_timeout_s);
    writers_.push_back(
        std::make_unique<replay::ShardedWriter>(replay::ShardedWriterOptions{
            .endpoints = config.replay.Endpoints(),
            .writer = writer,
            .environment = index * num_environments + e,
            .num_environments = config.actors.count * num_environments}));
  }
}

std::vector<replay::StepSink*> Writers::sinks() const {
  std::vector<replay::StepSink*> sinks;
  sinks.reserve(writers_.size());
  for (const auto& writer : writers_) sinks.push_back(writer.get());
  return sinks;
}

double Writers::WaitedSeconds() const {
  double sum = 0.0;
  for (const auto& writer : writers_) sum += writer->metrics().waited_s;
  return sum;
}

int64_t Writers::AcknowledgedSteps() const {
  int64_t sum = 0;
  for (const auto& writer : writers_) {
    sum += writer->metrics().acknowledged_steps;
  }
  return sum;
}

void Writers::StopWaiting() {
  for (const auto& writer : writers_) writer->StopWaiting();
}

void Writers::Drain() {
  const Clock::TimePoint deadline = Clock::Real().Now() + 300ms;
  for (const auto& writer : writers_) {
    if (!writer->Flush(deadline)) {
      const replay::StepWriterMetrics metrics = writer->metrics();
      const int64_t num_left = metrics.appended_steps -
                               metrics.acknowledged_steps -
                               metrics.dropped_steps;
      if (metrics.is_connected) {
        spdlog::info("the replay took no more: {} steps are left out",
                     num_left);
      } else {
        spdlog::warn("the replay does not answer: {} steps are lost", num_left);
      }
    }
    writer->Close();
  }
}

// The episodes that an actor has finished.
struct Episodes {
  int64_t count = 0;
  actors::EpisodeResult last;
};

void Report(const Actor& actor, const Episodes& episodes,
            const agents::TaskSpec& task, fleet::HeartbeatSender* heartbeat) {
  heartbeat->SetCounter("agent_steps", static_cast<double>(actor.num_steps()));
  heartbeat->SetCounter(
      "frames", static_cast<double>(actor.num_steps() * task.action_repeat));
  heartbeat->SetCounter("episodes", static_cast<double>(episodes.count));
  if (episodes.count > 0) {
    heartbeat->SetGauge("return", episodes.last.episode_return);
    heartbeat->SetGauge("episode_length",
                        static_cast<double>(episodes.last.length));
  }
  heartbeat->SetGauge("noise_scale", actor.NoiseScale());
  if (actor.num_endless() > 0) {
    heartbeat->SetGauge("endless_environments",
                        static_cast<double>(actor.num_endless()));
  }
}

int Run(const Invocation& invocation, int64_t index) {
  const RunConfig& config = invocation.config();
  CheckReplay(config.replay, config.learner.batch_size);
  const StopSignal stop;
  const auto heartbeat_options = fleet::HeartbeatSenderOptions::FromEnvironment(
      {.id = {"actor", static_cast<uint32_t>(index)}});
  fleet::HeartbeatSender heartbeat(heartbeat_options);
  const int64_t num_environments = config.actors.environments;
  const int64_t first_environment = index * num_environments;
  CheckFileLimit("actors.environments",
                 kOtherFiles + kFilesOfWriter * num_environments);
  const auto seed = static_cast<uint64_t>(config.run.seed);
  const env::TaskRegistry& registry = invocation.registry.tasks;
  env::VectorEnvironment environments(
      env::MakeConfiguredEnvironments(registry, config.task, seed,
                                      first_environment, num_environments),
      {.threads = config.actors.env_threads});
  // a user's environment may be one that exists only once
  const agents::TaskSpec task =
      agents::MakeTaskSpec(config.task, environments.environment(0));
  const auto is_over = [&stop, &heartbeat] {
    return stop.count() > 0 || heartbeat.StopOrder().has_value();
  };
  std::function<std::string()> find_server;
  if (config.actors.inference == actors::InferencePlace::kHost) {
    find_server =
        FindEndpoint({"inference", 0}, heartbeat_options, &heartbeat, config);
  }
  const std::unique_ptr<ActorPolicy> followed =
      MakeActorPolicy(config, task, index, find_server, is_over);
  Writers writers(config, task, index);
  const actors::HindsightSinks sinks(config.actors.hindsight, config.task.name,
                                     seed, first_environment, &environments,
                                     writers.sinks());
  Episodes episodes;
  Actor actor(task, &environments, &followed->policy(), sinks.sinks(),
              {.exploration = config.actors.exploration,
               .first_environment = first_environment,
               .num_all_environments = config.actors.count * num_environments,
               .seed = seed,
               .first_position = FirstPosition(heartbeat_options.incarnation),
               .long_episode_steps = config.evaluation.max_episode_steps,
               .on_episode = [&episodes](const actors::EpisodeResult& episode) {
                 episodes.last = episode;
                 ++episodes.count;
               }});
  // an order to stop also ends a wait for the replay
  const Thread watch("stop-watch", [&](const Thread::StopToken& token) {
    while (!token.IsStopRequested()) {
      if (is_over()) return writers.StopWaiting();
      std::this_thread::sleep_for(50ms);
    }
  });
  // the first actions already follow the learner's policy
  heartbeat.SetState(fleet::RoleState::kWaiting, "parameters of the learner");
  while (!is_over() && !followed->version()) followed->Poll(100ms);
  heartbeat.SetState(fleet::RoleState::kRunning);
  while (!is_over()) {
    actor.SetGlobalSteps(followed->agent_steps());
    actor.Step();
    followed->Poll(0ms);
    heartbeat.SetWaited(writers.WaitedSeconds(), "replay: no room yet");
    Report(actor, episodes, task, &heartbeat);
    heartbeat.SetGauge("policy_step",
                       static_cast<double>(*followed->version()));
  }
  heartbeat.SetState(fleet::RoleState::kDraining, "steps under way");
  writers.Drain();
  spdlog::info(
      "ends after {} agent steps, {} of them acknowledged by the replay, and "
      "{} episodes; policy {:.1f} s, environments {:.1f} s, replay {:.1f} s, "
      "of which waiting {:.1f} s",
      actor.num_steps(), writers.AcknowledgedSteps(), episodes.count,
      actor.times().policy_s, actor.times().environments_s,
      actor.times().sinks_s, writers.WaitedSeconds());
  return 0;
}

}  // namespace

Program ActorProgram() {
  // shared by the option and the run that reads it
  const auto index_text = std::make_shared<std::string>("0");
  const auto role = std::make_shared<std::string>("actor");
  return {.name = "actor",
          .about = "Acts in environments and streams the steps to the replay.",
          .add_options =
              [index_text, role](config::CommandLine& command_line) {
                command_line.AddOption(
                    "--role", role.get(),
                    "actor, or inference: the server that computes the policy "
                    "for all actors (actors.inference: host)");
                command_line.AddOption(
                    "--index", index_text.get(),
                    "index of this actor, less than actors.count");
              },
          .run =
              [index_text, role](const Invocation& invocation) {
                const RunConfig& config = invocation.config();
                if (*role == "inference") {
                  LogOptions log = config.log;
                  log.role = "inference";
                  InitLogging(log);
                  return ServeInference(invocation);
                }
                if (*role != "actor") {
                  throw ConfigError(fmt::format(
                      "--role '{}': want actor or inference", *role));
                }
                const int64_t index = ParseInteger(
                    "--index", *index_text, {0, config.actors.count - 1});
                LogOptions log = config.log;
                log.role = fmt::format("actor-{}", index);
                InitLogging(log);
                return Run(invocation, index);
              }};
}

}  // namespace replicant::programs
