#include "programs/actor/inference_role.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <thread>

#include "actors/batched_policy.h"
#include "actors/inference_server.h"
#include "actors/parameter_client.h"
#include "agents/task_spec.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/rpc/group_key.h"
#include "base/rpc/server.h"
#include "base/thread.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "programs/run/role_endpoint.h"
#include "programs/run/stop_on_exit.h"

namespace replicant::programs {
namespace {

using namespace std::chrono_literals;

// Follows the learner; used by the loop's thread alone, which makes the client.
class Parameters {
 public:
  explicit Parameters(const RunConfig& config) : config_(config) {}

  std::optional<actors::PublishedParameters> Poll() {
    if (!client_) {
      client_.emplace(config_.learner.parameter_bind,
                      rpc::GroupKey::FromFile(KeyFileOf(config_)));
    }
    const auto newest = client_->Poll(0ms);
    if (!newest) return std::nullopt;
    return actors::PublishedParameters{.version = newest->version,
                                       .agent_steps = newest->agent_steps,
                                       .bytes = newest->bytes};
  }

 private:
  const RunConfig& config_;
  std::optional<actors::ParameterClient> client_;
};

// Reports the server's counts; in the loop's thread.
void Beat(const actors::InferenceServer& inference,
          fleet::HeartbeatSender* heartbeat) {
  const actors::InferenceMetrics& metrics = inference.metrics();
  heartbeat->SetCounter("requests", static_cast<double>(metrics.requests));
  heartbeat->SetCounter("rows", static_cast<double>(metrics.rows));
  heartbeat->SetCounter("batches", static_cast<double>(metrics.batches));
  if (!inference.version()) {
    heartbeat->SetState(fleet::RoleState::kWaiting,
                        "parameters of the learner");
    return;
  }
  heartbeat->SetGauge("policy_step", static_cast<double>(*inference.version()));
  heartbeat->SetState(fleet::RoleState::kRunning);
}

}  // namespace

int ServeInference(const Invocation& invocation) {
  RunConfig config = invocation.config();
  const StopSignal stop;
  const auto heartbeat_options =
      fleet::HeartbeatSenderOptions::FromEnvironment({.id = {"inference", 0}});
  fleet::HeartbeatSender heartbeat(heartbeat_options);
  const auto seed = static_cast<uint64_t>(config.run.seed);
  const agents::TaskSpec task =
      agents::MakeTaskSpec(config.task, invocation.registry.tasks);
  actors::BatchedPolicy policy(
      *config.MakeAgent(), task,
      {.backend =
           config.actors.inference_backend == actors::InferenceBackend::kCuda
               ? "cuda"
               : "cpu",
       .threads = static_cast<int>(config.actors.inference_threads),
       .seed = seed},
      /*max_rows=*/config.actors.count * config.actors.environments,
      // far from the noise of the processes before this one
      /*first_run=*/(int64_t{heartbeat_options.incarnation} - 1) << 31);
  Parameters parameters(config);
  const Clock::Duration max_wait =
      FromSeconds(1e-3 * config.actors.inference_wait_ms);
  actors::InferenceServer inference(
      &policy, {.max_wait = max_wait, .poll_parameters = [&parameters] {
                  return parameters.Poll();
                }});

  const auto key = rpc::GroupKey::FromFile(KeyFileOf(config));
  rpc::ZmqContext context;
  const auto guard = key.MakeGuard(context);
  rpc::ServerOptions options;
  options.socket.curve = key.server_role();
  options.tick_interval = max_wait;
  rpc::Server server(context, actors::InferenceProtocol(), options);
  inference.AttachTo(server);
  const auto port = ChooseEndpoint(heartbeat_options.id, heartbeat_options,
                                   &heartbeat, &config);
  spdlog::info("listening at {}", server.Bind(config.actors.inference_bind));
  Thread loop("inference", [&](const Thread::StopToken&) { server.Run(); });
  const StopOnExit stop_on_exit{server};

  while (stop.count() == 0 && !heartbeat.StopOrder()) {
    if (!loop.IsRunning()) {
      loop.Join();
      throw CommError("inference: the loop that serves has ended");
    }
    server.Post([&] { Beat(inference, &heartbeat); });
    std::this_thread::sleep_for(200ms);
  }
  heartbeat.SetState(fleet::RoleState::kDraining, "the run ends");
  server.Stop();
  loop.Join();
  const actors::InferenceMetrics& metrics = inference.metrics();
  spdlog::info("ends after {} batches with {} observations of {} requests",
               metrics.batches, metrics.rows, metrics.requests);
  return 0;
}

}  // namespace replicant::programs
