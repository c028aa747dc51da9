#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/config/document.h"
#include "base/fs.h"
#include "base/rpc/curve.h"
#include "programs/deploy/containers.h"
#include "programs/deploy/deploy.h"

// A job group of SkyPilot: the learner's job is primary, and the nodes of
// actors and workers join it by its name in the group. Launcher, learner,
// replay and evaluator share the learner's node.
namespace replicant::programs {
namespace {

constexpr const char* kRunKey = "run.key";
constexpr const char* kRunFolder = "/replicant-run/run";  // folder on the node

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
@TASKS@)yaml";

// Nodes with an agent each: @HOSTS@ is "actors", "workers", ...
constexpr const char* kHostsTask = R"yaml(---
name: @HOSTS@
num_nodes: @NODES@
resources:
@RESOURCES@
  use_spot: @SPOT@
  # a lost node comes back as often as it is lost, which is no error
  job_recovery: {max_restarts_on_errors: 100000}
file_mounts:
  /replicant-run/run.key: @KEY_FILE@
run: |
  set -u
  chmod 600 /replicant-run/run.key
  exec fleet --join tcp://learner-0.@NAME@:@JOIN_PORT@ --key_file /replicant-run/run.key \
    --host "@HOSTS@-$SKYPILOT_NODE_RANK" @OFFER@ \
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

std::vector<std::string> SkypilotSettings(const RunConfig& config) {
  const std::string group = ObjectName(config.run.name);
  std::vector<std::string> settings =
      AddressSettings(config, fmt::format("servers-@INDEX@.{}", group),
                      fmt::format("inference-0.{}", group));
  settings.insert(settings.end(), {config::Setting("run.dir", kRunFolder),
                                   "run.key_file=/replicant-run/run.key",
                                   // hosts join from the network, as pods do
                                   "cluster.backend=kubernetes",
                                   fmt::format("cluster.port={}", kJoinPort)});
  if (config.task.suite_folder.empty()) {
    settings.push_back(fmt::format("task.suite_folder={}", kSuiteFolder));
  }
  return settings;
}

std::string RenderSkypilot(const RenderInput& input) {
  const RunConfig& config = input.config;
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::SkypilotConfig& skypilot = cluster.skypilot;
  const int64_t actors = ActorsPerHost(config, skypilot.actor_nodes);

  AtomicWriteFile(input.folder / "config.yaml", input.resolved_yaml);
  rpc::WriteKeyPair(input.folder / kRunKey, rpc::GenerateCurveKeyPair());

  const std::string storage =
      skypilot.run_storage.empty()
          ? std::string()
          : fmt::format("  {}: {{source: {}, mode: MOUNT_CACHED}}\n",
                        kRunFolder, config::QuotedToYaml(skypilot.run_storage));
  std::vector<TemplateValue> values = {
      {"NAME", ObjectName(config.run.name)},
      {"RUN", kRunFolder},
      {"STORAGE", storage},
      {"CONFIG_FILE",
       config::QuotedToYaml((input.folder / "config.yaml").string())},
      {"KEY_FILE", config::QuotedToYaml((input.folder / kRunKey).string())},
      {"LEARNER_RESOURCES", TaskResources(LauncherResources(config), skypilot)},
      {"LEARNER_SPOT", skypilot.learner_spot ? "true" : "false"},
      {"JOIN_PORT", std::to_string(kJoinPort)},
      {"JOIN_TIMEOUT", fmt::format("{:.0f}", cluster.join_timeout_s)}};
  const auto task = [&](const char* hosts, const char* role, int64_t num_nodes,
                        int64_t num_processes, bool is_spot,
                        const std::string& offer) {
    if (num_nodes == 0) return std::string();
    std::vector<TemplateValue> own = {
        {"HOSTS", hosts},
        {"NODES", std::to_string(num_nodes)},
        {"RESOURCES",
         TaskResources(SumOf(cluster, {{role, num_processes}}), skypilot)},
        {"SPOT", is_spot ? "true" : "false"},
        {"OFFER", offer}};
    own.insert(own.end(), values.begin(), values.end());
    return FillIn(kHostsTask, own);
  };
  values.push_back(
      {"TASKS",
       task("workers", "worker", NumHosts(config, "worker"), 1,
            skypilot.learner_spot,
            "--role \"worker-$((SKYPILOT_NODE_RANK + 1))\"") +
           task("servers", "server", NumHosts(config, "server"), 1,
                skypilot.learner_spot,
                "--role \"server-$SKYPILOT_NODE_RANK\" --keep "
                "/replicant-run/kept") +
           task("inference", "inference", NumHosts(config, "inference"), 1,
                skypilot.actor_spot, "--role inference-0") +
           task("actors", "actor", skypilot.actor_nodes,
                std::max<int64_t>(1, actors), skypilot.actor_spot,
                fmt::format("--actors {}", actors))});
  AtomicWriteFile(input.folder / "skypilot.yaml", FillIn(kJobGroup, values));
  return fmt::format(
      "wrote {0}; start the run by: sky jobs launch {0}/skypilot.yaml\n"
      "run.key is the key pair of the run: keep it as a secret\n",
      input.folder.string());
}

}  // namespace replicant::programs
