#include "programs/deploy/deploy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/config/document.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "programs/join/join_program.h"
#include "programs/roles/fleet_roles.h"
#include "programs/run/shell_word.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using replicant::testing::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class DeployTest : public ::testing::Test {
 protected:
  std::string RenderAs(const std::string& backend, const std::string& yaml) {
    Registry registry = Registry::BuiltIn();
    if (::getenv("REPLICANT_MAKE_ENV") != nullptr) {  // NOLINT
      registry.tasks.Add({.name = std::string(env::kPythonTask)});
    }
    const auto loaded =
        LoadRunConfig(config::Document::FromText("run.yaml", yaml), registry);
    const Commands commands = Commands::InFolder("/opt/my programs");
    return Render(backend, {.config = loaded.config,
                            .resolved_yaml = loaded.resolved_yaml,
                            .commands = commands,
                            .registry = registry,
                            .folder = folder_});
  }
  CommandResult Validate() const {
    return RunCommand({.command = {REPLICANT_PYTHON,
                                   std::string(REPLICANT_SOURCE_DIR) +
                                       "/tests/programs/validate_manifests.py",
                                   folder_}},
                      std::chrono::minutes(3));
  }
  std::string Read(const std::string& name) const {
    return ReadFile(folder_ / name);
  }

  TemporaryFolder parent_;
  fs::path folder_ = parent_.path() / "rendered here";
  static constexpr const char* kRun =
      "run: {name: my_Run, seed: 7}\n"
      "task: {name: cartpole-swingup}\n"
      "actors: {count: 10}\n"
      "cluster:\n"
      "  roles: {learner: {cores: 6, gpus: 1, memory_mb: 9000}, actor: {cores: "
      "2}}\n"
      "  slurm: {partition: gpu, actor_partition: cpu, actor_tasks: 4, "
      "options: "
      "[\"--qos=low\"]}\n"
      "  kubernetes: {image: \"here/replicant:1\", namespace: lab, actor_pods: "
      "3, storage_class: fast}\n";
};

// Would catch a word of a path that a shell splits, or a script that it cannot
// read.
TEST_F(DeployTest, SlurmScriptsAreSound) {
  RenderAs("slurm", kRun);
  for (const char* const name : {"run.sbatch", "actors.sbatch", "submit"}) {
    const CommandResult result = RunCommand(
        {.command = {"shellcheck", folder_ / name}}, std::chrono::minutes(1));
    EXPECT_TRUE(result.status.ok()) << result.output;
    struct stat status {};
    ASSERT_EQ(::stat((folder_ / name).c_str(), &status), 0);
    EXPECT_TRUE(status.st_mode & 0100) << name;
  }
  EXPECT_THAT(Read("run.sbatch"),
              AllOf(HasSubstr("#SBATCH --partition=gpu\n"),
                    HasSubstr("#SBATCH --qos=low\n"),
                    HasSubstr("#SBATCH --gpus-per-task=1\n"),
                    HasSubstr("#SBATCH --mem=9000M\n"),
                    HasSubstr("#SBATCH --cpus-per-task=9\n"),
                    HasSubstr("fleet='/opt/my programs/fleet'\n"),
                    HasSubstr("#SBATCH --signal=B:TERM@60\n"),
                    Not(HasSubstr("@N")), HasSubstr("#SBATCH --requeue\n")));
  // 10 actors on 4 hosts
  EXPECT_THAT(
      Read("actors.sbatch"),
      AllOf(HasSubstr("#SBATCH --array=0-3\n"),
            HasSubstr("#SBATCH --cpus-per-task=6\n"),
            HasSubstr("#SBATCH --partition=cpu\n"), HasSubstr("--actors 3 "),
            // the last task has the number of the whole array
            HasSubstr("scontrol requeue \"$id\""),
            Not(HasSubstr("job \"$SLURM_JOB_ID\""))));
  EXPECT_THAT(Read("config.yaml"), HasSubstr("backend: slurm"));
}

// Would catch a job that Slurm still sends its warning to, and that then ends
// for good.
TEST_F(DeployTest, SlurmJobsComeBackAfterAWarningOnly) {
  RenderAs("slurm", kRun);
  const auto comes_back = [&](const std::string& state,
                              const std::string& end) {
    // the script's functions, with a scontrol that tells of such a job
    const std::string script = fmt::format(
        "export SLURM_TIME_FORMAT='%d/%m %H:%M'\n"
        "scontrol() {{\n"
        "  local format=$SLURM_TIME_FORMAT\n"
        "  [[ $format == standard ]] && format=%FT%T\n"
        "  echo \"JobId=7 JobState={} EndTime=$(date --date='{}' "
        "\"+$format\") PreemptTime=None\"; }}\nSLURM_JOB_ID=7\n"
        "source <(sed -n '/^id=/,/^requeues=/p' {})\ncomes_back",
        state, end, ShellWord((folder_ / "actors.sbatch").string()));
    return RunCommand({.command = {"bash", "-uc", script}},
                      std::chrono::minutes(1))
        .status.ok();
  };
  EXPECT_TRUE(comes_back("RUNNING", "+1 min"));
  EXPECT_TRUE(comes_back("SIGNALING", "+1 min"));
  EXPECT_FALSE(comes_back("SIGNALING", "+1 hour"));
  EXPECT_FALSE(comes_back("CANCELLED", "+1 min"));
  EXPECT_FALSE(comes_back("COMPLETING", "+1 min"));
}

// Would catch a task that was told to leave the run, and is requeued because
// its agent ended while Slurm was asked about the job.
TEST_F(DeployTest, AnAgentThatEndsDuringTheTrapHasItsOwnCode) {
  RenderAs("slurm", kRun);
  const std::string script = fmt::format(
      "scontrol() {{ sleep 1; echo 'JobId=7 JobState=RUNNING "
      "EndTime=2099-01-01T00:00:00 PreemptTime=None'; }}\nSLURM_JOB_ID=7\n"
      "source <(sed -n -e '/^id=/,/^await_child/{{/^await_child/!p}}' "
      "-e '/^await_child() {{/,/^}}/p' {})\n"
      "bash -c 'trap \"exit 5\" TERM; while sleep 0.05; do :; done' &\n"
      "child=$!\n"
      "(sleep 0.5; kill -TERM $$) &\n"
      "await_child\nexit \"$code\"\n",
      ShellWord((folder_ / "actors.sbatch").string()));
  const CommandResult result =
      RunCommand({.command = {"bash", "-uc", script}}, std::chrono::minutes(1));
  EXPECT_EQ(result.status.ToString(), "exit code 5") << result.output;
}

TEST_F(DeployTest, SlurmRunsImagesOnTheLaunchersNodes) {
  const std::string run =
      "run: {name: images}\n"
      "learner: {workload: resnet50}\n"
      "resnet50: {depth: 18, image_size: 32, num_classes: 2}\n"
      "images: {source: image_folder, train: /data}\n";
  RenderAs("slurm", run);
  EXPECT_THAT(Read("run.sbatch"), HasSubstr("#SBATCH --nodes=1\n"));
  EXPECT_FALSE(fs::exists(folder_ / "actors.sbatch"));
}

// Would catch a folder's name that sbatch, its patterns or the template read as
// something else.
TEST_F(DeployTest, TheNameOfTheFolderReachesTheJob) {
  folder_ = parent_.path() / "a,b %j @SEED@ #1";
  RenderAs("slurm", kRun);
  const fs::path programs = parent_.path() / "bin";
  MakeFolders(programs);
  AtomicWriteFile(programs / "sbatch",
                  "#!/bin/sh\necho \"$RUN|$SEED|$*\" >>\"$JOBS\"\necho 12\n",
                  0755);
  const fs::path jobs = parent_.path() / "jobs";
  const CommandResult result = RunCommand(
      {.command = {"env", "PATH=" + programs.string() + ":/usr/bin:/bin",
                   "JOBS=" + jobs.string(), folder_ / "submit", "5"}},
      std::chrono::minutes(1));
  EXPECT_TRUE(result.status.ok()) << result.output;
  const std::string run = (folder_ / "seed-5").string();
  const std::string log =
      (parent_.path() / "a,b %%j @SEED@ #1/seed-5").string();
  EXPECT_EQ(ReadFile(jobs),
            run + "|5|--parsable --export=ALL --output=" + log +
                ".job.log run.sbatch\n" + run +
                "|5|--parsable --dependency=after:12 --export=ALL --output=" +
                log + ".actors.%a.log actors.sbatch\n");
}

// Would catch a name that a reader of YAML takes for no value or a number.
TEST_F(DeployTest, NamesOfKubernetesStayText) {
  RenderAs("kubernetes",
           "run: {name: \"null\"}\ntask: {name: cartpole-swingup}\n"
           "cluster:\n  kubernetes: {image: 'a\"b', namespace: '12', "
           "run_storage: '3 #'}\n");
  EXPECT_THAT(
      Read("4-run.yaml"),
      AllOf(HasSubstr("  name: \"null\"\n"), HasSubstr("namespace: \"12\"\n"),
            HasSubstr("image: \"a\\\"b\"\n"), HasSubstr("{storage: \"3 #\"}")));
}

TEST_F(DeployTest, KubernetesObjectsAreValidByTheirSchemas) {
  RenderAs("kubernetes", kRun);
  const CommandResult result = Validate();
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_EQ(result.output,
            "ConfigMap my-run-config\n"
            "Secret my-run-key\n"
            "Service my-run-replay\n"
            "StatefulSet my-run-replay\n"
            "PersistentVolumeClaim my-run-run\n"
            "JobSet my-run\n");
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "2-key.yaml").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_FALSE(fs::exists(folder_ / "run.key"));
}

// Would catch a setting of one role's pods that reaches another's.
TEST_F(DeployTest, PodsAreAsOperatorsWantThem) {
  RenderAs("kubernetes",
           "run: {name: my-run}\n"
           "task: {name: cartpole-swingup}\n"
           "cluster:\n"
           "  roles:\n"
           "    learner: {image: 'lab/cuda:1', node_selector: "
           "['gpu.site/model=h100', zone=a], priority_class: high}\n"
           "    actor: {node_selector: ['pool=spot'], priority_class: low}\n"
           "  kubernetes: {image: 'lab/cpu:1', queue: team, topology: "
           "site/rack, user: 1000}\n");
  const CommandResult result = Validate();
  EXPECT_TRUE(result.status.ok()) << result.output;
  const std::string user =
      "securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: "
      "1000, fsGroup: 1000, fsGroupChangePolicy: OnRootMismatch}\n";
  EXPECT_THAT(Read("3-replay.yaml"),
              AllOf(HasSubstr("  labels: {kueue.x-k8s.io/queue-name: "
                              "\"team\"}\nspec:\n"),
                    HasSubstr(user), HasSubstr("image: \"lab/cpu:1\""),
                    Not(HasSubstr("nodeSelector"))));
  const std::string run = Read("4-run.yaml");
  const size_t actors = run.find("- name: actors");
  EXPECT_THAT(
      run.substr(0, actors),
      AllOf(HasSubstr("  labels: {kueue.x-k8s.io/queue-name: \"team\"}\n"
                      "spec:\n  suspend: true\n"),
            HasSubstr(user), HasSubstr("image: \"lab/cuda:1\""),
            HasSubstr("            priorityClassName: \"high\"\n"
                      "            nodeSelector:\n"
                      "              \"gpu.site/model\": \"h100\"\n"
                      "              \"zone\": \"a\"\n"),
            HasSubstr("values: [78]")));
  EXPECT_THAT(
      run.substr(actors),
      AllOf(HasSubstr("annotations: {kueue.x-k8s.io/podset-preferred-topology: "
                      "\"site/rack\"}"),
            HasSubstr(user), HasSubstr("image: \"lab/cpu:1\""),
            HasSubstr("priorityClassName: \"low\""),
            HasSubstr("\"pool\": \"spot\"")));
}

// Would catch a configuration that the pods cannot read.
TEST_F(DeployTest, TheConfigurationOfThePodsLoads) {
  RenderAs("kubernetes", kRun);
  const auto map = config::Document::FromFile(folder_ / "1-config.yaml");
  const std::string yaml =
      map.root().Find("data")->value.Find("config.yaml")->value.text;
  const auto loaded = LoadRunConfig(
      config::Document::FromText("config.yaml", yaml), Registry::BuiltIn());
  const fleet::ClusterConfig& cluster = loaded.config.cluster;
  EXPECT_EQ(cluster.backend, fleet::ClusterBackend::kKubernetes);
  EXPECT_TRUE(cluster.replay_on_host);
  EXPECT_EQ(cluster.port, 7100);
  EXPECT_EQ(loaded.config.replay.bind,
            "tcp://my-run-replay-0.my-run-replay:7101");
  EXPECT_EQ(loaded.config.run.key_file, "/secret/run.key");
}

// Would catch pods that share an address, or a shard on another's volume.
TEST_F(DeployTest, EveryShardOfTheReplayHasAPod) {
  RenderAs("kubernetes", std::string(kRun) + "replay: {shards: 3}\n");
  EXPECT_THAT(Read("3-replay.yaml"),
              AllOf(HasSubstr("  replicas: 3\n"),
                    HasSubstr("\"--role\", \"replay-$(INDEX)\"")));
  const auto map = config::Document::FromFile(folder_ / "1-config.yaml");
  const std::string yaml =
      map.root().Find("data")->value.Find("config.yaml")->value.text;
  const auto loaded = LoadRunConfig(
      config::Document::FromText("config.yaml", yaml), Registry::BuiltIn());
  EXPECT_EQ(
      loaded.config.replay.Endpoints(),
      (std::vector<std::string>{"tcp://my-run-replay-0.my-run-replay:7101",
                                "tcp://my-run-replay-1.my-run-replay:7101",
                                "tcp://my-run-replay-2.my-run-replay:7101"}));
}

// Would catch a job that is killed for the memory of its replay.
TEST_F(DeployTest, AJobAsksForTheMemoryOfAllItsRoles) {
  const std::string roles =
      "task: {name: cartpole-swingup}\n"
      "actors: {count: 5}\n"
      "replay: {shards: 2}\n"
      "cluster:\n"
      "  local_actors: 1\n"
      "  roles: {learner: {memory_mb: 1000}, replay: {memory_mb: 4500}, "
      "evaluator: {memory_mb: 500}, actor: {memory_mb: 700}}\n"
      "  slurm: {actor_tasks: 2}\n"
      "  kubernetes: {actor_pods: 2}\n";
  RenderAs("slurm", roles);
  EXPECT_THAT(Read("run.sbatch"), HasSubstr("#SBATCH --mem=11200M\n"));
  EXPECT_THAT(Read("actors.sbatch"), HasSubstr("#SBATCH --mem=1400M\n"));
  folder_ = parent_.path() / "pods";
  RenderAs("kubernetes", roles);
  EXPECT_THAT(Read("4-run.yaml"),
              AllOf(HasSubstr("{requests: {cpu: \"6\", memory: \"2200Mi\"}}"),
                    HasSubstr("{requests: {cpu: \"2\", memory: \"1400Mi\"}}")));
}

// Two processors for each shard.
TEST_F(DeployTest, TheJobOfTheLearnerHasRoomForAllShards) {
  RenderAs("slurm", std::string(kRun) + "replay: {shards: 3}\n");
  EXPECT_THAT(Read("run.sbatch"), HasSubstr("#SBATCH --cpus-per-task=13\n"));
}

// scripts/checks/skypilot gives the file to SkyPilot's own parser.
TEST_F(DeployTest, SkypilotGetsAJobGroupWhoseLearnerIsPrimary) {
  RenderAs("skypilot",
           "run: {name: my_Run}\n"
           "task: {name: cartpole-swingup}\n"
           "actors: {count: 10}\n"
           "cluster:\n"
           "  roles: {learner: {gpus: 1, memory_mb: 9500}}\n"
           "  skypilot: {actor_nodes: 4, accelerator: H100, infra: "
           "kubernetes, run_storage: \"s3://lab/run\"}\n");
  const std::string yaml = Read("skypilot.yaml");
  EXPECT_THAT(
      yaml, AllOf(HasSubstr("name: my-run\nexecution: parallel\n"
                            "primary_tasks: [learner]\n"),
                  HasSubstr("  cpus: 7+\n  memory: 10+\n"
                            "  accelerators: \"H100:1\"\n"
                            "  infra: \"kubernetes\"\n"),
                  HasSubstr("source: \"s3://lab/run\", mode: MOUNT_CACHED"),
                  HasSubstr("num_nodes: 4\n"), HasSubstr("  use_spot: true\n"),
                  HasSubstr("--join tcp://learner-0.my-run:7100 "),
                  HasSubstr("--actors 3 "), Not(HasSubstr("@N"))));
  EXPECT_THAT(Read("config.yaml"), HasSubstr("backend: kubernetes"));
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "run.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(DeployTest, HostsGetTheFilesThatTheyNeed) {
  const fs::path run = parent_.path();
  MakeFolders(run / "model");
  MakeFolders(run / "checkpoints");
  for (const char* name :
       {"config.yaml", "config.new.yaml", "addresses.yaml", "rendezvous.key",
        "run.key", "model/model.xml", "checkpoints/model"}) {
    AtomicWriteFile(run / name, name);
  }
  EXPECT_THAT(FilesForHosts(run, run / "config.new.yaml"),
              ::testing::UnorderedElementsAre(
                  fleet::AgentFile{"config.yaml", "config.new.yaml"},
                  fleet::AgentFile{"addresses.yaml", "addresses.yaml"},
                  fleet::AgentFile{"rendezvous.key", "rendezvous.key"},
                  fleet::AgentFile{"model/model.xml", "model/model.xml"}));
}

// Would catch hosts that wait for ever: a message of more bytes ends their
// connection.
TEST_F(DeployTest, FilesThatAreTooLargeTogetherAreRefused) {
  const fs::path run = parent_.path();
  MakeFolders(run / "model");
  AtomicWriteFile(run / "config.yaml", "");
  for (const char* name : {"a.bin", "b.bin"}) {
    AtomicWriteFile(run / "model" / name, "");
    // a hole, of which the first one is read
    fs::resize_file(run / "model" / name, fleet::kMaxAgentFilesBytes / 2 + 1);
  }
  EXPECT_EQ(
      MessageOf<ConfigError>([&] { FilesForHosts(run, run / "config.yaml"); }),
      run.string() +
          ": the files that other hosts need, most of them the model's, "
          "are more than 240 MiB, or more than 10000 files; hint: "
          "smaller meshes and textures, or cluster.backend local");
}

// Would catch a replay that wants the learner's files on its own host.
TEST_F(DeployTest, AReplayThatJoinsNeedsTheSizeOfAStepOnly) {
  const fs::path files = parent_.path();
  AtomicWriteFile(files / "config.yaml",
                  "task: {name: cartpole-swingup}\n"
                  "evaluation: {video: {camera: nowhere}}\n"
                  "replay: {prior: {folder: /not/here}}\n"
                  "learner: {batch_shares: {default: 0.5, prior: 0.5}}\n");
  EXPECT_THAT(JoinedCommand({"replay", 0}, files, "/kept", Registry::BuiltIn(),
                            Commands::InFolder("/opt")),
              ::testing::IsSupersetOf({"replay.action_bytes=4",
                                       "replay.checkpoint_folder=/kept/"
                                       "replay"}));
}

TEST_F(DeployTest, HostsUnderSshTakeTheShardsInOrder) {
  const auto load = [](int shards) {
    return LoadRunConfig(
               config::Document::FromText(
                   "run.yaml",
                   "task: {name: cartpole-swingup}\n"
                   "replay: {shards: " +
                       std::to_string(shards) +
                       "}\n"
                       "cluster:\n"
                       "  backend: ssh\n"
                       "  hosts:\n"
                       "    - {name: a, shard_address: \"tcp://10.0.0.5:71\", "
                       "shard_folder: /d}\n"
                       "    - {name: b}\n"
                       "    - {name: c, shard_address: \"tcp://10.0.0.6:71\", "
                       "shard_folder: /e}\n"),
               Registry::BuiltIn())
        .config;
  };
  const RunConfig config = load(2);
  EXPECT_EQ(
      config.replay.Endpoints(),
      (std::vector<std::string>{"tcp://10.0.0.5:71", "tcp://10.0.0.6:71"}));
  const auto agents = LaunchedAgents(config, Commands::InFolder("/opt"));
  ASSERT_EQ(agents.size(), 5u);
  EXPECT_EQ(agents[1].name, "a/replay-0");
  EXPECT_THAT(agents[4].command,
              ::testing::IsSupersetOf(
                  {"c", "--role", "replay-1", "--keep", "/e", "c/replay-1"}));
  EXPECT_THAT(MessageOf<ConfigError>([&] { load(3); }),
              HasSubstr("cluster.hosts: 2 of them have a shard_address, and "
                        "replay.shards is 3; want one for each, or none"));
}

constexpr const char* kWorkers =
    "run: {name: my-run}\n"
    "task: {name: cartpole-swingup}\n"
    "actors: {count: 2}\n"
    "learner: {replication: {strategy: between_graph, replicas: 4, "
    "communicator: tcp}}\n"
    "cluster:\n"
    "  workers_on_hosts: true\n"
    "  roles: {worker: {cores: 3, gpus: 1, memory_mb: 800, node_selector: "
    "[zone=b]}}\n"
    "  skypilot: {actor_nodes: 1}\n";

// Would catch a worker without a job, or two jobs for the same one.
TEST_F(DeployTest, WorkersOfTheLearnerHaveHosts) {
  RenderAs("slurm", kWorkers);
  for (const char* const name : {"workers.sbatch", "submit"}) {
    const CommandResult result = RunCommand(
        {.command = {"shellcheck", folder_ / name}}, std::chrono::minutes(1));
    EXPECT_TRUE(result.status.ok()) << result.output;
  }
  EXPECT_THAT(Read("workers.sbatch"),
              AllOf(HasSubstr("#SBATCH --array=0-2\n"),
                    HasSubstr("#SBATCH --cpus-per-task=3\n"),
                    HasSubstr("#SBATCH --mem=800M\n"),
                    HasSubstr("#SBATCH --gpus-per-task=1\n"),
                    HasSubstr("role=worker-$((SLURM_ARRAY_TASK_ID + 1))\n"),
                    HasSubstr(" --role \"$role\" "), Not(HasSubstr("@R"))));
  EXPECT_THAT(Read("submit"), AllOf(HasSubstr("actors=$(sbatch "),
                                    HasSubstr("workers=$(sbatch "),
                                    HasSubstr(" workers.sbatch)\n")));

  folder_ = parent_.path() / "pods";
  RenderAs("kubernetes", kWorkers);
  const CommandResult result = Validate();
  EXPECT_TRUE(result.status.ok()) << result.output;
  const std::string run = Read("4-run.yaml");
  const std::string workers =
      run.substr(run.find("- name: workers"),
                 run.find("- name: actors") - run.find("- name: workers"));
  EXPECT_THAT(
      workers,
      AllOf(HasSubstr("parallelism: 3\n"),
            HasSubstr("--role worker-$((JOB_COMPLETION_INDEX + 1)) "),
            HasSubstr("\"zone\": \"b\""),
            HasSubstr("{requests: {cpu: \"3\", memory: \"800Mi\"}, limits: "
                      "{nvidia.com/gpu: \"1\"}}")));

  folder_ = parent_.path() / "nodes";
  RenderAs("skypilot", kWorkers);
  const std::string group = Read("skypilot.yaml");
  EXPECT_THAT(group, AllOf(HasSubstr("---\nname: workers\nnum_nodes: 3\n"),
                           HasSubstr("--role \"worker-$((SKYPILOT_NODE_RANK + "
                                     "1))\" "),
                           HasSubstr("---\nname: actors\nnum_nodes: 1\n")));
}

// Would catch a server whose clients do not know its name, or whose variables
// are lost with its pod.
TEST_F(DeployTest, ServersHavePodsWithNames) {
  const char* const servers =
      "run: {name: my-run}\n"
      "task: {name: cartpole-swingup}\n"
      "actors: {count: 2, inference: host}\n"
      "learner: {replication: {strategy: parameter_server, replicas: 2, "
      "servers: [auto, auto]}}\n"
      "cluster:\n"
      "  servers_on_hosts: true\n"
      "  inference_on_host: true\n"
      "  roles: {server: {memory_mb: 700}, inference: {gpus: 1}}\n";
  const auto load = [](const std::string& yaml) {
    return LoadRunConfig(config::Document::FromText("config.yaml", yaml),
                         Registry::BuiltIn())
        .config;
  };
  RenderAs("kubernetes", servers);
  const CommandResult result = Validate();
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(
      Read("3-servers.yaml"),
      AllOf(HasSubstr("  name: my-run-server\n"), HasSubstr("  replicas: 2\n"),
            HasSubstr("\"--role\", \"server-$(INDEX)\""),
            HasSubstr("memory: \"700Mi\""), HasSubstr("volumeClaimTemplates:"),
            Not(HasSubstr("@P"))));
  EXPECT_THAT(Read("4-run.yaml"), AllOf(HasSubstr("- name: inference\n"),
                                        HasSubstr("--role inference-0 "),
                                        HasSubstr("{nvidia.com/gpu: \"1\"}")));
  const auto map = config::Document::FromFile(folder_ / "1-config.yaml");
  const RunConfig pods =
      load(map.root().Find("data")->value.Find("config.yaml")->value.text);
  EXPECT_EQ(
      pods.learner.replication.servers,
      (std::vector<std::string>{"tcp://my-run-server-0.my-run-server:7103",
                                "tcp://my-run-server-1.my-run-server:7103"}));
  EXPECT_EQ(pods.actors.inference_bind,
            "tcp://my-run-inference-0-0.my-run:7104");

  folder_ = parent_.path() / "nodes";
  RenderAs("skypilot", servers);
  EXPECT_THAT(Read("skypilot.yaml"),
              AllOf(HasSubstr("---\nname: servers\nnum_nodes: 2\n"),
                    HasSubstr("--role \"server-$SKYPILOT_NODE_RANK\" "),
                    HasSubstr("---\nname: inference\nnum_nodes: 1\n"),
                    HasSubstr("accelerators: \"H100:1\"")));
  const RunConfig nodes = load(Read("config.yaml"));
  EXPECT_EQ(nodes.learner.replication.servers,
            (std::vector<std::string>{"tcp://servers-0.my-run:7103",
                                      "tcp://servers-1.my-run:7103"}));
  EXPECT_EQ(nodes.actors.inference_bind, "tcp://inference-0.my-run:7104");

  folder_ = parent_.path() / "jobs";
  RenderAs("slurm", servers);
  for (const char* const name :
       {"servers.sbatch", "inference.sbatch", "submit"}) {
    const CommandResult checked = RunCommand(
        {.command = {"shellcheck", folder_ / name}}, std::chrono::minutes(1));
    EXPECT_TRUE(checked.status.ok()) << checked.output;
  }
  EXPECT_THAT(
      Read("servers.sbatch"),
      AllOf(HasSubstr("#SBATCH --array=0-1\n"),
            HasSubstr("#SBATCH --mem=700M\n"), HasSubstr("#SBATCH --requeue\n"),
            HasSubstr("role=server-$((SLURM_ARRAY_TASK_ID + 0))\n"),
            HasSubstr(" --role \"$role\" --keep \"$RUN\" ")));
  EXPECT_THAT(Read("inference.sbatch"),
              AllOf(HasSubstr("#SBATCH --array=0-0\n"),
                    HasSubstr("#SBATCH --gpus-per-task=1\n"),
                    HasSubstr("role=inference-$((SLURM_ARRAY_TASK_ID + 0))\n"),
                    HasSubstr(" --role \"$role\" "), Not(HasSubstr("--keep"))));
  EXPECT_THAT(Read("submit"), AllOf(HasSubstr(" servers.sbatch)\n"),
                                    HasSubstr(" inference.sbatch)\n")));
  // the servers tell their addresses once they run
  const RunConfig jobs = load(Read("config.yaml"));
  EXPECT_EQ(jobs.learner.replication.servers,
            (std::vector<std::string>{"auto", "auto"}));
  // learner, replay and evaluator
  EXPECT_THAT(Read("run.sbatch"), HasSubstr("#SBATCH --cpus-per-task=11\n"));
}

// Would catch jobs that do not find the environment of the run.
TEST_F(DeployTest, JobsNameTheFunctionOfAPythonEnvironment) {
  const std::string run =
      "task: {name: python-environment}\n"
      "cluster: {slurm: {actor_tasks: 2}}\n";
  ::setenv("REPLICANT_MAKE_ENV", "/my robot.py:make", /*overwrite=*/1);
  RenderAs("slurm", run);
  const std::string refused =
      MessageOf<ConfigError>([&] { RenderAs("kubernetes", run); });
  ::unsetenv("REPLICANT_MAKE_ENV");
  for (const char* const name : {"run.sbatch", "actors.sbatch"}) {
    EXPECT_THAT(Read(name),
                HasSubstr("export REPLICANT_MAKE_ENV='/my robot.py:make'\n"));
  }
  EXPECT_EQ(refused,
            "--render kubernetes: its containers have the built programs, and "
            "task python-environment needs Python's; allowed: slurm");
  EXPECT_THAT(MessageOf<ConfigError>([&] { RenderAs("slurm", run); }),
              HasSubstr("task.name: task 'python-environment' is of a Python "
                        "function"));
}

// Would catch a learner's job that its workers and servers do not fit into.
TEST_F(DeployTest, TheJobOfTheLearnerHasRoomForItsParts) {
  RenderAs("slurm",
           "task: {name: cartpole-swingup}\n"
           "evaluation: {enabled: false}\n"
           "learner: {replication: {strategy: parameter_server, replicas: 2, "
           "servers: [auto, auto]}}\n"
           "cluster:\n"
           "  roles: {learner: {cores: 3}, worker: {cores: 5}, server: "
           "{cores: 7}, replay: {cores: 1}}\n");
  EXPECT_THAT(Read("run.sbatch"), HasSubstr("#SBATCH --cpus-per-task=23\n"));
}

// Would catch an agent on the wrong host, or an address that nobody listens at.
TEST_F(DeployTest, HostsUnderSshTakeThePartsOfTheLearner) {
  const auto load = [](const std::string& hosts) {
    return LoadRunConfig(
               config::Document::FromText(
                   "run.yaml",
                   "task: {name: cartpole-swingup}\n"
                   "actors: {inference: host}\n"
                   "learner: {replication: {strategy: parameter_server, "
                   "replicas: 2, servers: [auto]}}\n"
                   "cluster:\n"
                   "  backend: ssh\n"
                   "  hosts:\n" +
                       hosts),
               Registry::BuiltIn())
        .config;
  };
  const RunConfig config = load(
      "    - {name: a, worker: true}\n"
      "    - {name: b, server_address: \"tcp://10.0.0.5:71\", server_folder: "
      "/s, inference_address: \"tcp://10.0.0.5:72\"}\n");
  EXPECT_EQ(config.learner.replication.servers,
            std::vector<std::string>{"tcp://10.0.0.5:71"});
  EXPECT_EQ(config.actors.inference_bind, "tcp://10.0.0.5:72");
  const auto agents = LaunchedAgents(config, Commands::InFolder("/opt"));
  std::vector<std::string> names;
  names.reserve(agents.size());
  for (const auto& agent : agents) names.push_back(agent.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a/worker-1", "b",
                                             "b/server-0", "b/inference-0"}));
  EXPECT_THAT(agents[3].command,
              ::testing::IsSupersetOf({"b", "--role", "server-0", "--keep"}));
  std::vector<std::string> remote;
  for (const fleet::RoleId& id : RemoteRoles(config)) {
    remote.push_back(id.ToString());
  }
  EXPECT_EQ(remote, (std::vector<std::string>{"worker-1", "server-0",
                                              "inference-0", "actor-0"}));
  EXPECT_THAT(
      MessageOf<ConfigError>([&] {
        load(
            "    - {name: a, server_address: \"tcp://10.0.0.5:71\", "
            "server_folder: /s}\n"
            "    - {name: b, server_address: \"tcp://10.0.0.6:71\", "
            "server_folder: /s}\n");
      }),
      HasSubstr(
          "cluster.hosts: 2 of them have a server_address, and the number "
          "of learner.replication.servers is 1; want one for each, or "
          "none"));
}

TEST_F(DeployTest, MistakesAreNamed) {
  EXPECT_EQ(
      MessageOf<ConfigError>([&] { RenderAs("sge", kRun); }),
      "--render sge: no such backend; allowed: slurm, kubernetes, skypilot");
  EXPECT_THAT(
      MessageOf<ConfigError>([&] {
        RenderAs("skypilot",
                 "task: {name: cartpole-swingup}\n"
                 "cluster: {skypilot: {learner_spot: true}}\n");
      }),
      HasSubstr("cluster.skypilot.learner_spot: needs run_storage, from which "
                "the next node resumes the run"));
  EXPECT_THAT(MessageOf<ConfigError>([&] {
                RenderAs("kubernetes",
                         "task: {name: cartpole-swingup}\n"
                         "cluster:\n"
                         "  roles: {actor: {node_selector: [gpu]}, evaluator: "
                         "{image: x}}\n"
                         "  kubernetes: {topology: rack}\n");
              }),
              AllOf(HasSubstr("cluster.roles.actor.node_selector: 'gpu' is not "
                              "of the form LABEL=VALUE"),
                    HasSubstr("cluster.roles.evaluator.image: unknown key"),
                    HasSubstr("cluster.kubernetes.topology: needs queue: Kueue "
                              "places the pods")));
  EXPECT_THAT(MessageOf<ConfigError>([&] {
                RenderAs("slurm", std::string(kRun) +
                                      "replay: {bind: \"ipc:///tmp/x\"}\n");
              }),
              HasSubstr("replay.bind: other hosts do not reach"));
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              RenderAs("kubernetes",
                       "learner: {workload: resnet50, parameter_bind: \"\"}\n");
            }),
            "--render kubernetes: its files start a replay and actors, and "
            "workload resnet50 has none; allowed: slurm");
  RenderAs("slurm", kRun);
  EXPECT_THAT(MessageOf<IoError>([&] { RenderAs("slurm", kRun); }),
              HasSubstr("it is not empty"));
}

TEST(ShellWordTest, QuotesWhatAShellWouldSplit) {
  EXPECT_EQ(ShellWord("/opt/a-b_c"), "/opt/a-b_c");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("it's $x"), "'it'\\''s $x'");
}

}  // namespace
}  // namespace replicant::programs
