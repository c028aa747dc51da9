#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/config/document.h"
#include "base/fs.h"
#include "base/rpc/curve.h"
#include "programs/deploy/containers.h"
#include "programs/deploy/deploy.h"

// A job group of SkyPilot: the learner's job is primary, and the actors' nodes
// join it by its name in the group. Launcher, learner, replay and evaluator
// share the learner's node.
namespace replicant::programs {
namespace {

constexpr const char* kRunKey = "run.key";

// Task names are letters, digits, '-' and '_'. SkyPilot gives the first node of
// the job NAME the host name NAME-0.GROUP on all nodes of the group.
constexpr const char* kJobGroup = R"yaml(---
name: @NAME@
execution: parallel
primary_tasks: [learner]
# for the last logs of the actors
termination_delay: 30s
---
name: learner
resources:
@LEARNER_RESOURCES@
  use_spot: @LEARNER_SPOT@
  job_recovery: {max_restarts_on_errors: 20}
file_mounts:
  /replicant-run/config.yaml: @CONFIG_FILE@
  /replicant-run/run.key: @KEY_FILE@
@STORAGE@run: |
  set -u
  chmod 600 /replicant-run/run.key
  address=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)
  # a node may be started again after the end of the run
  if grep -q '^status: complete' @RUN@/state.yaml 2>/dev/null; then exit 0; fi
  if [ -f @RUN@/state.yaml ]; then
    exec fleet --resume @RUN@ --set cluster.address="$address"
  fi
  exec fleet --config /replicant-run/config.yaml --set cluster.address="$address"
@ACTORS@)yaml";

constexpr const char* kActorsTask = R"yaml(---
name: actors
num_nodes: @NODES@
resources:
@ACTOR_RESOURCES@
  use_spot: @ACTOR_SPOT@
  # a lost node comes back as often as it is lost, which is no error
  job_recovery: {max_restarts_on_errors: 100000}
file_mounts:
  /replicant-run/run.key: @KEY_FILE@
run: |
  set -u
  chmod 600 /replicant-run/run.key
  exec fleet --join tcp://learner-0.@NAME@:@JOIN_PORT@ --key_file /replicant-run/run.key \
    --host "actors-$SKYPILOT_NODE_RANK" --actors @ACTORS_PER_NODE@ \
    --join_timeout_s @JOIN_TIMEOUT@
)yaml";

// The lines of `resources`, with its indent.
std::string TaskResources(const JobResources& job,
                          const fleet::SkypilotConfig& skypilot) {
  std::string text = fmt::format("  cpus: {}+\n", job.cores);
  if (job.memory_mb > 0) {
    text += fmt::format("  memory: {}+\n", (job.memory_mb + 999) / 1000);
  }
  if (job.gpus > 0) {
    text += fmt::format("  accelerators: {}\n",
                        config::QuotedToYaml(fmt::format(
                            "{}:{}", skypilot.accelerator, job.gpus)));
  }
  if (!skypilot.infra.empty()) {
    text += fmt::format("  infra: {}\n", config::QuotedToYaml(skypilot.infra));
  }
  text += fmt::format("  image_id: {}",
                      config::QuotedToYaml("docker:" + skypilot.image));
  return text;
}

}  // namespace

std::string RenderSkypilot(const RenderInput& input) {
  const RunConfig& config = input.config;
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::SkypilotConfig& skypilot = cluster.skypilot;
  const std::string run = "/replicant-run/run";
  const int64_t actors = ActorsPerHost(config, skypilot.actor_nodes);

  std::vector<std::string> settings = {
      config::Setting("run.dir", run), "run.key_file=/replicant-run/run.key",
      // hosts join from the network, as pods do
      "cluster.backend=kubernetes", fmt::format("cluster.port={}", kJoinPort)};
  if (config.task.suite_folder.empty()) {
    settings.push_back(fmt::format("task.suite_folder={}", kSuiteFolder));
  }
  AtomicWriteFile(input.folder / "config.yaml", WithSettings(input, settings));
  rpc::WriteKeyPair(input.folder / kRunKey, rpc::GenerateCurveKeyPair());

  const std::string storage =
      skypilot.run_storage.empty()
          ? std::string()
          : fmt::format("  {}: {{source: {}, mode: MOUNT_CACHED}}\n", run,
                        config::QuotedToYaml(skypilot.run_storage));
  std::vector<TemplateValue> values = {
      {"NAME", ObjectName(config.run.name)},
      {"RUN", run},
      {"STORAGE", storage},
      {"CONFIG_FILE",
       config::QuotedToYaml((input.folder / "config.yaml").string())},
      {"KEY_FILE", config::QuotedToYaml((input.folder / kRunKey).string())},
      {"LEARNER_RESOURCES",
       TaskResources(SumOf(cluster, {{"learner", 1},
                                     {"replay", config.replay.shards},
                                     {"evaluator", 1},
                                     {"actor", cluster.local_actors}}),
                     skypilot)},
      {"ACTOR_RESOURCES",
       TaskResources(SumOf(cluster, {{"actor", std::max<int64_t>(1, actors)}}),
                     skypilot)},
      {"NODES", std::to_string(skypilot.actor_nodes)},
      {"LEARNER_SPOT", skypilot.learner_spot ? "true" : "false"},
      {"ACTOR_SPOT", skypilot.actor_spot ? "true" : "false"},
      {"JOIN_PORT", std::to_string(kJoinPort)},
      {"ACTORS_PER_NODE", std::to_string(actors)},
      {"JOIN_TIMEOUT", fmt::format("{:.0f}", cluster.join_timeout_s)}};
  values.push_back(
      {"ACTORS", skypilot.actor_nodes > 0 ? FillIn(kActorsTask, values) : ""});
  AtomicWriteFile(input.folder / "skypilot.yaml", FillIn(kJobGroup, values));
  return fmt::format(
      "wrote {0}; start the run by: sky jobs launch {0}/skypilot.yaml\n"
      "run.key is the key pair of the run: keep it as a secret\n",
      input.folder.string());
}

}  // namespace replicant::programs
