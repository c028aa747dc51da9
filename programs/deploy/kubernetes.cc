#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>

#include "base/config/scalar.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rpc/curve.h"
#include "programs/deploy/containers.h"
#include "programs/deploy/deploy.h"

// Files: a ConfigMap with the configuration, a Secret with the run's key pair,
// a StatefulSet with its headless Service for the replay, and one for the
// parameter servers, and a JobSet with the launcher's job and those of actors,
// workers and inference server.
//
// Pods find each other by the names that a StatefulSet and a JobSet give them.
// All but the launcher's run an agent, which joins the launcher
// (fleet/host_agent.h), so the launcher supervises their processes as on any
// host, and a new pod joins again. Kubernetes restarts pods, not processes.
namespace replicant::programs {
namespace {

constexpr const char* kKeyName = "run.key";

constexpr const char* kConfigMap = R"(apiVersion: v1
kind: ConfigMap
metadata:
  name: @NAME@-config
  namespace: @NAMESPACE@
data:
  config.yaml: |
@CONFIG@)";

constexpr const char* kSecret = R"(apiVersion: v1
kind: Secret
metadata:
  name: @NAME@-key
  namespace: @NAMESPACE@
type: Opaque
stringData:
  run.key: |
@KEY@)";

// Pods that keep what they store: @PART@ is "replay" or "server".
constexpr const char* kKept = R"yaml(apiVersion: v1
kind: Service
metadata:
  name: @NAME@-@PART@
  namespace: @NAMESPACE@
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: @NAME@-@PART@}
  ports:
  - {name: @PART@, port: @PORT@}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: @NAME@-@PART@
  namespace: @NAMESPACE@
@QUEUE@spec:
  serviceName: @NAME@-@PART@
  replicas: @PODS@
  podManagementPolicy: Parallel
  selector:
    matchLabels: {app: @NAME@-@PART@}
  template:
    metadata:
      labels: {app: @NAME@-@PART@}
    spec:
      terminationGracePeriodSeconds: 120
@POD_LINES@      containers:
      - name: @PART@
        image: @IMAGE@
        command: ["fleet"]
        args: ["--join", "@JOIN@", "--key_file", "/secret/run.key",
               "--role", "@PART@-$(INDEX)", "--host", "$(POD_NAME)", "--keep", "/data",
               "--join_timeout_s", "1000000"]
        env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: INDEX
          valueFrom:
            fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}
        ports:
        - {name: @PART@, containerPort: @PORT@}
        resources: @RESOURCES@
        volumeMounts:
        - {name: key, mountPath: /secret, readOnly: true}
        - {name: data, mountPath: /data}
      volumes:
      - name: key
        secret: {secretName: @NAME@-key, defaultMode: 256}
  volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]@STORAGE_CLASS_6@
      resources: {requests: {storage: @STORAGE@}}
)yaml";

constexpr const char* kRun = R"(apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: @NAME@-run
  namespace: @NAMESPACE@
spec:
  accessModes: [ReadWriteOnce]@STORAGE_CLASS_2@
  resources: {requests: {storage: @RUN_STORAGE@}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: @OBJECT@
  namespace: @NAMESPACE@
@QUEUE@spec:
@SUSPEND@  # the run is complete when the launcher is; pods restart alone before the set
  successPolicy: {operator: All, targetReplicatedJobs: [launcher]}
  failurePolicy:
    maxRestarts: 3
    rules:
    # another start would meet the same configuration
    - name: configuration
      action: FailJobSet
      targetReplicatedJobs: [launcher]
      onJobFailureReasons: [PodFailurePolicy]
  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
  replicatedJobs:
  - name: launcher
    replicas: 1
    template:
      spec:
        parallelism: 1
        completions: 1
        backoffLimit: 20
        podFailurePolicy:
          rules:
          # a pod that its node loses is no failure
          - action: Ignore
            onPodConditions: [{type: DisruptionTarget, status: "True"}]
          - action: FailJob
            onExitCodes: {containerName: launcher, operator: In, values: [@EXIT_CONFIG@]}
        template:
@TOPOLOGY@          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 120
@POD_LINES@            containers:
            - name: launcher
              image: @IMAGE@
              command: ["/bin/sh", "-c"]
              args:
              - |
                # a pod may be started again after the end of the run
                if [ -f /run/replicant/state.yaml ]; then
                  read -r status </run/replicant/state.yaml
                  [ "$status" = "status: complete" ] && exit 0
                  exec fleet --resume /run/replicant --set cluster.address="$POD_IP"
                fi
                exec fleet --config /config/config.yaml --set cluster.address="$POD_IP"
              env:
              - name: POD_IP
                valueFrom: {fieldRef: {fieldPath: status.podIP}}
              ports:
              - {name: join, containerPort: @JOIN_PORT@, protocol: TCP}
              resources: @LEARNER_RESOURCES@
              volumeMounts:
              - {name: config, mountPath: /config, readOnly: true}
              - {name: key, mountPath: /secret, readOnly: true}
              - {name: run, mountPath: /run/replicant, subPath: run}
            volumes:
            - name: config
              configMap: {name: @NAME@-config}
            - name: key
              secret: {secretName: @NAME@-key, defaultMode: 256}
            - name: run
              persistentVolumeClaim: {claimName: @NAME@-run}
@HOSTS@)";

// Pods with an agent each: @HOSTS@ is "actors", "workers" or "inference".
constexpr const char* kHosts = R"yaml(  - name: @HOSTS@
    replicas: 1
    template:
      spec:
        parallelism: @PODS@
        completions: @PODS@
        completionMode: Indexed
        backoffLimit: 100000
        template:
@TOPOLOGY@          spec:
            restartPolicy: OnFailure
            terminationGracePeriodSeconds: 30
@POD_LINES@            containers:
            - name: agent
              image: @IMAGE@
              command: ["/bin/sh", "-c"]
              args:
              - |
                exec fleet --join @JOIN@ --key_file /secret/run.key \
                  --host "$POD_NAME" @OFFER@ --join_timeout_s @JOIN_TIMEOUT@
              env:
              - name: POD_NAME
                valueFrom: {fieldRef: {fieldPath: metadata.name}}
              resources: @RESOURCES@
              volumeMounts:
              - {name: key, mountPath: /secret, readOnly: true}
            volumes:
            - name: key
              secret: {secretName: @NAME@-key, defaultMode: 256}
)yaml";

std::string Indented(std::string_view text, int blanks) {
  std::string indented;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (!line.empty()) indented.append(static_cast<size_t>(blanks), ' ');
    indented.append(line);
    indented += '\n';
    begin = end + 1;
  }
  return indented;
}

std::string Resources(const JobResources& container) {
  std::string wanted = fmt::format("cpu: \"{}\"", container.cores);
  if (container.memory_mb > 0) {
    wanted += fmt::format(", memory: \"{}Mi\"", container.memory_mb);
  }
  std::string limits;
  if (container.gpus > 0) {
    limits =
        fmt::format(", limits: {{nvidia.com/gpu: \"{}\"}}", container.gpus);
  }
  return fmt::format("{{requests: {{{}}}{}}}", wanted, limits);
}

// The lines of a pod's spec that its role decides, each after `blanks`.
std::string PodLines(const fleet::RoleResources& role, int64_t user,
                     int blanks) {
  std::string lines;
  if (user > 0) {
    lines += fmt::format(
        "securityContext: {{runAsNonRoot: true, runAsUser: {0}, runAsGroup: "
        "{0}, fsGroup: {0}, fsGroupChangePolicy: OnRootMismatch}}\n",
        user);
  }
  if (!role.priority_class.empty()) {
    lines += fmt::format("priorityClassName: {}\n",
                         config::QuotedToYaml(role.priority_class));
  }
  if (!role.node_selector.empty()) lines += "nodeSelector:\n";
  for (const std::string& label : role.node_selector) {
    const size_t sign = label.find('=');
    lines +=
        fmt::format("  {}: {}\n", config::QuotedToYaml(label.substr(0, sign)),
                    config::QuotedToYaml(label.substr(sign + 1)));
  }
  return Indented(lines, blanks);
}

// What the templates name, but for what each role decides.
std::vector<TemplateValue> CommonValues(const RenderInput& input,
                                        const std::string& name) {
  const RunConfig& config = input.config;
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::KubernetesConfig& kubernetes = cluster.kubernetes;
  const auto key_file = input.folder / kKeyName;
  rpc::WriteKeyPair(key_file, rpc::GenerateCurveKeyPair());
  const std::string key = ReadFile(key_file);
  std::filesystem::remove(key_file);

  const auto storage_class = [&](int blanks) {
    return kubernetes.storage_class.empty()
               ? std::string()
               : fmt::format("\n{:{}}storageClassName: {}", "", blanks,
                             config::TextToYaml(kubernetes.storage_class));
  };
  return {
      {"NAME", name},
      // the whole name, which a run may have called "null"
      {"OBJECT", config::TextToYaml(name)},
      {"NAMESPACE", config::TextToYaml(kubernetes.space)},
      // a JobSet names its pods SET-JOB-INDEX-INDEX, in the subdomain SET
      {"JOIN", fmt::format("tcp://{0}-launcher-0-0.{0}:{1}", name, kJoinPort)},
      {"JOIN_PORT", std::to_string(kJoinPort)},
      {"JOIN_TIMEOUT", fmt::format("{:.0f}", cluster.join_timeout_s)},
      {"RUN_STORAGE", config::QuotedToYaml(kubernetes.run_storage)},
      {"STORAGE_CLASS_2", storage_class(2)},
      {"STORAGE_CLASS_6", storage_class(6)},
      {"LEARNER_RESOURCES", Resources(LauncherResources(config))},
      {"EXIT_CONFIG", std::to_string(kExitConfig)},
      {"QUEUE", kubernetes.queue.empty()
                    ? ""
                    : fmt::format("  labels: {{kueue.x-k8s.io/queue-name: "
                                  "{}}}\n",
                                  config::QuotedToYaml(kubernetes.queue))},
      // Kueue starts it
      {"SUSPEND", kubernetes.queue.empty() ? "" : "  suspend: true\n"},
      {"TOPOLOGY",
       kubernetes.topology.empty()
           ? ""
           : fmt::format("          metadata:\n"
                         "            annotations: "
                         "{{kueue.x-k8s.io/podset-preferred-topology: {}}}\n",
                         config::QuotedToYaml(kubernetes.topology))},
      {"CONFIG", Indented(input.resolved_yaml, 4)},
      {"KEY", Indented(key, 4)}};
}

}  // namespace

std::vector<std::string> KubernetesSettings(const RunConfig& config) {
  const std::string name = ObjectName(config.run.name);
  std::vector<std::string> settings = AddressSettings(
      config, fmt::format("{0}-server-@INDEX@.{0}-server", name),
      fmt::format("{0}-inference-0-0.{0}", name));
  settings.insert(
      settings.end(),
      {"cluster.backend=kubernetes", "run.dir=/run/replicant",
       fmt::format("run.key_file=/secret/{}", kKeyName),
       fmt::format("cluster.port={}", kJoinPort), "cluster.replay_on_host=true",
       fmt::format("replay.bind=tcp://{0}-replay-{{shard}}.{0}-replay:{1}",
                   name, kReplayPort)});
  if (config.task.suite_folder.empty()) {
    settings.push_back(fmt::format("task.suite_folder={}", kSuiteFolder));
  }
  return settings;
}

std::string RenderKubernetes(const RenderInput& input) {
  const RunConfig& config = input.config;
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::KubernetesConfig& kubernetes = cluster.kubernetes;
  const std::string name = ObjectName(config.run.name);
  const std::vector<TemplateValue> values = CommonValues(input, name);
  // what the role decides about its pods
  const auto pods_of = [&](const char* role, int blanks, int64_t num_processes,
                           std::vector<TemplateValue> more) {
    const fleet::RoleResources& pods = cluster.roles.at(role);
    more.insert(
        more.end(),
        {{"POD_LINES", PodLines(pods, kubernetes.user, blanks)},
         {"IMAGE", config::QuotedToYaml(pods.image.empty() ? kubernetes.image
                                                           : pods.image)},
         {"RESOURCES", Resources(SumOf(cluster, {{role, num_processes}}))}});
    more.insert(more.end(), values.begin(), values.end());
    return more;
  };
  // a job whose pods join with `offer`
  const auto job = [&](const char* hosts, const char* role, int64_t num_pods,
                       int64_t num_processes, const std::string& offer) {
    if (num_pods == 0) return std::string();
    return FillIn(kHosts, pods_of(role, /*blanks=*/12, num_processes,
                                  {{"HOSTS", hosts},
                                   {"PODS", std::to_string(num_pods)},
                                   {"OFFER", offer}}));
  };
  const auto kept = [&](const char* part, int64_t num_pods, int port,
                        const std::string& storage) {
    return FillIn(kKept, pods_of(part, /*blanks=*/6, 1,
                                 {{"PART", part},
                                  {"PODS", std::to_string(num_pods)},
                                  {"PORT", std::to_string(port)},
                                  {"STORAGE", config::QuotedToYaml(storage)}}));
  };
  const int64_t actors = ActorsPerHost(config, kubernetes.actor_pods);
  const std::string jobs =
      job("workers", "worker", NumHosts(config, "worker"), 1,
          "--role worker-$((JOB_COMPLETION_INDEX + 1))") +
      job("inference", "inference", NumHosts(config, "inference"), 1,
          "--role inference-0") +
      job("actors", "actor", kubernetes.actor_pods,
          std::max<int64_t>(1, actors), fmt::format("--actors {}", actors));
  const auto write = [&](const char* file, const std::string& text,
                         unsigned mode = 0666) {
    AtomicWriteFile(input.folder / file, text, mode);
  };
  write("1-config.yaml", FillIn(kConfigMap, values));
  write("2-key.yaml", FillIn(kSecret, values), 0600);
  write("3-replay.yaml", kept("replay", config.replay.shards, kReplayPort,
                              kubernetes.replay_storage));
  const int64_t servers = NumHosts(config, "server");
  const bool has_servers = servers > 0;
  if (has_servers) {
    write("3-servers.yaml",
          kept("server", servers, kServerPort, kubernetes.run_storage));
  }
  write("4-run.yaml",
        FillIn(kRun, pods_of("learner", /*blanks=*/12, 1, {{"HOSTS", jobs}})));
  return fmt::format(
      "wrote {0}; start the run by: kubectl apply -f {0}\n"
      "once it is complete, end the pods that keep its replay by: kubectl "
      "delete -f {0}/3-replay.yaml{1}\n"
      "2-key.yaml holds the key pair of the run: keep it as a secret\n",
      input.folder.string(),
      has_servers ? fmt::format(" -f {}/3-servers.yaml", input.folder.string())
                  : "");
}

}  // namespace replicant::programs
