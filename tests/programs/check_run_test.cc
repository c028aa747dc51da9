#include "programs/run/check_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/config/load.h"
#include "base/fs.h"
#include "base/rpc/curve.h"
#include "engine/kernels/backend.h"
#include "evaluation/evaluation_log.h"
#include "fleet/run_folder.h"
#include "learner/checkpoint_folder.h"
#include "learner/workloads/agent/agent_workload.h"
#include "programs/run/check_resume.h"
#include "programs/run/make_workload.h"
#include "programs/run/mix_prior.h"
#include "programs/run/run_config.h"
#include "replicator/make_replicator.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::MessageOf;
using ::testing::StartsWith;

RunConfig OnReplicas(const replicator::Strategy* strategy, double timeout_s) {
  RunConfig config;
  config.learner.replication.strategy = strategy;
  config.learner.replication.heartbeat_timeout_s = timeout_s;
  return config;
}

TEST(CheckHeartbeatsTest, ReplicasAreToNoticeBeforeTheFleet) {
  using replicator::Strategy;
  EXPECT_EQ(MessageOf<ConfigError>([] {
              CheckHeartbeats(OnReplicas(&Strategy::kBetweenGraph, 15.0));
            }),
            "learner.replication.heartbeat_timeout_s: 15 s is not less than "
            "fleet.heartbeat_timeout_s, 15 s; the fleet would kill a silent "
            "learner before its processes can name the silent one; allowed: "
            "less, or 0 to turn the check off");
  EXPECT_NO_THROW(CheckHeartbeats(OnReplicas(&Strategy::kBetweenGraph, 14.0)));
  EXPECT_NO_THROW(CheckHeartbeats(OnReplicas(&Strategy::kBetweenGraph, 0.0)));
  // nobody else watches
  EXPECT_NO_THROW(CheckHeartbeats(OnReplicas(&Strategy::kInGraph, 60.0)));
}

// Would catch a run whose learner can never bind its address.
TEST(CheckAddressesTest, RefusesAnAddressThatIsGivenTwice) {
  RunConfig config;
  config.replay.bind = config.learner.parameter_bind = "ipc:///tmp/one";
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckAddresses(config); }),
            "learner.parameter_bind: ipc:///tmp/one is also used by "
            "replay.bind; choose another");
  config.learner.parameter_bind = "ipc:///tmp/other";
  EXPECT_NO_THROW(CheckAddresses(config));
}

TEST(CheckAddressesTest, RefusesWhatNobodyCanListenAt) {
  const TemporaryFolder folder;
  const auto refusal = [](const RunConfig& config) {
    return MessageOf<ConfigError>([&config] { CheckAddresses(config); });
  };
  RunConfig config;
  config.replay.bind = "127.0.0.1:7000";
  EXPECT_EQ(refusal(config),
            "replay.bind: '127.0.0.1:7000': want auto, tcp://ADDRESS:PORT, "
            "ipc://FILE or ipc://@NAME");
  config.replay.bind = "ipc:///nonexistent/x";
  EXPECT_EQ(refusal(config),
            "replay.bind: 'ipc:///nonexistent/x': no folder /nonexistent");
  config = {};
  config.replay.metrics_address = config.fleet.metrics_address = "127.0.0.1:9";
  EXPECT_EQ(refusal(config),
            "replay.metrics_address: 127.0.0.1:9 is also used by "
            "fleet.metrics_address; choose another");
  config.replay.metrics_address = "127.0.0.1:8";
  config.replay.shards = 2;
  EXPECT_EQ(refusal(config),
            "replay.metrics_address: 127.0.0.1:9 is also used by "
            "fleet.metrics_address; choose another");
  config = {};
  const auto file = folder.path() / "file";
  AtomicWriteFile(file, "");
  config.replay.disk.folder = file;
  EXPECT_EQ(refusal(config),
            "replay.disk_folder: " + file.string() + " is not a folder");
}

// Would catch a run that waits for hosts which cannot help it.
TEST(CheckClusterTest, RefusesPartsThatOtherHostsCannotRun) {
  const auto problem = [](const std::string& cluster,
                          const std::string& replication,
                          const std::string& more = "") {
    const auto config = LoadRunConfig(
        config::Document::FromText(
            "run.yaml", "cluster: {address: 10.0.0.2, " + cluster +
                            "}\nlearner: {replication: {" + replication +
                            "}}\ntask: {name: cartpole-swingup}\n" + more),
        Registry::BuiltIn());
    return MessageOf<ConfigError>([&] { CheckCluster(config.config); });
  };
  const std::string slurm = "backend: slurm, workers_on_hosts: true";
  const std::string two = "strategy: between_graph, replicas: 2";
  EXPECT_EQ(
      problem(slurm, two),
      "cluster.workers_on_hosts: workers on other hosts, but mpirun starts "
      "those of learner.replication.communicator mpi; allowed: tcp");
  EXPECT_EQ(
      problem(slurm, "strategy: single"),
      "cluster.workers_on_hosts: workers on other hosts, but "
      "learner.replication has one worker, the learner; hint: strategy "
      "between_graph with communicator tcp, or parameter_server, and more "
      "replicas");
  EXPECT_EQ(
      problem(slurm, two + ", communicator: tcp, rendezvous: "
                           "\"tcp://127.0.0.1:7100\""),
      "learner.replication.rendezvous: other hosts do not reach "
      "'tcp://127.0.0.1:7100'; allowed under cluster.backend slurm: auto, "
      "or tcp://ADDRESS:PORT of a network interface");
  EXPECT_EQ(
      problem("backend: ssh, hosts: [{name: a, worker: true}]",
              "strategy: between_graph, replicas: 4, communicator: tcp"),
      "cluster.hosts: 1 of them have a worker, and learner.replication has 3 "
      "besides the learner; want a host for each, or none");
  EXPECT_EQ(problem("backend: ssh, hosts: [{name: a, inference_address: "
                    "\"tcp://10.0.0.3:70\"}]",
                    "strategy: single"),
            "cluster.hosts: an inference server on another host, but "
            "actors.inference is actor; allowed: host");
  EXPECT_EQ(problem("backend: kubernetes, inference_on_host: true",
                    "strategy: single",
                    "actors: {inference: host, inference_bind: "
                    "\"tcp://10.0.0.3:*\"}\n"),
            "actors.inference_bind: 'tcp://10.0.0.3:*', but another host joins "
            "for it; want auto or that host's tcp://HOST:PORT");
  EXPECT_EQ(
      problem("backend: kubernetes, replay_on_host: true", "strategy: single"),
      "replay.bind: 'auto', but another host joins for it; want that "
      "host's tcp://HOST:PORT");
  EXPECT_EQ(problem("backend: ssh, hosts: [{name: a, server_address: "
                    "\"tcp://10.0.0.3:70\", server_folder: /d}]",
                    "strategy: single"),
            "cluster.hosts: parameter servers on other hosts, but "
            "learner.replication.strategy single has none; allowed: "
            "parameter_server");
  EXPECT_EQ(problem("backend: slurm, servers_on_hosts: true",
                    "strategy: parameter_server, replicas: 2, servers: [auto, "
                    "\"tcp://127.0.0.1:70\"]"),
            "learner.replication.servers: other hosts do not reach "
            "'tcp://127.0.0.1:70'; allowed under cluster.backend slurm: auto, "
            "or tcp://ADDRESS:PORT of a network interface");
  EXPECT_EQ(problem("backend: slurm, servers_on_hosts: true, "
                    "inference_on_host: true",
                    "strategy: parameter_server, replicas: 2",
                    "actors: {inference: host}\n"),
            "no exception");
  EXPECT_EQ(problem("backend: ssh, hosts: [{name: a, inference_address: "
                    "\"tcp://127.0.0.1:70\"}]",
                    "strategy: single", "actors: {inference: host}\n"),
            "actors.inference_bind: other hosts do not reach "
            "'tcp://127.0.0.1:70'; allowed under cluster.backend ssh: auto, or "
            "tcp://ADDRESS:PORT of a network interface");
}

class WrongShape : public env::EnvironmentWrapper {
 public:
  using EnvironmentWrapper::EnvironmentWrapper;
  env::TimeStep Reset(const env::ObservationBuffer& /*out*/) override {
    throw InvalidArgument("wrong-shape: [3], but the space says [4]");
  }
};

// Would catch an environment whose observations the first actor refuses, half a
// minute after the start.
TEST(CheckRunTest, AnEnvironmentFromOutsideIsReset) {
  auto config = LoadRunConfig(config::Document::FromText(
                                  "run.yaml", "task: {name: cartpole-balance}"),
                              Registry::BuiltIn())
                    .config;
  const env::TaskRegistry suite = Registry::BuiltIn().tasks;
  const env::TaskConfig inner = config.task;
  const env::TaskRegistry tasks(std::vector<env::TaskDefinition>{
      {.name = "wrong-shape",
       .make_environment = [&](const env::EnvironmentOptions& options) {
         return std::make_unique<WrongShape>(env::MakeConfiguredEnvironment(
             suite, inner, options.seed, options.index));
       }}});
  config.task.name = "wrong-shape";
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { CheckRun(config, tasks); }),
            "wrong-shape: [3], but the space says [4]");
}

TEST(CheckBackendTest, RefusesOneThatCannotRunHere) {
  RunConfig config;
  EXPECT_NO_THROW(CheckBackend(config));
  config.learner.replication.backend = "tpu";
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckBackend(config); }),
            "learner.replication.backend: 'tpu' cannot run here; allowed: "
            "reference, cpu");
  const std::vector<std::string> built = kernels::BuiltBackends();
  if (std::ranges::find(built, "cuda") != built.end()) return;
  config.learner.replication.backend = "cuda";
  EXPECT_THAT(MessageOf<ConfigError>([&] { CheckBackend(config); }),
              AllOf(StartsWith("learner.replication.backend: 'cuda' cannot run "
                               "here: cuda:0: "),
                    EndsWith("; allowed: reference, cpu")));
}

replay::ReplayConfig ReadReplay(const std::string& yaml) {
  return config::Load<replay::ReplayConfig>(
             config::Document::FromText("run.yaml", yaml))
      .config;
}

TEST(RunConfigTest, TheLearnerSamplesTheOneTableByItsName) {
  const RunConfig config =
      LoadRunConfig(config::Document::FromText(
                        "run.yaml",
                        "replay: {tables: {main: {n_step: 5, discount: 0.9}}}\n"
                        "learner: {importance_exponent: 0.4}\n"),
                    Registry::BuiltIn())
          .config;
  EXPECT_EQ(config.sampled_table().name, "main");
  EXPECT_EQ(config.SpecOf({}).discount, 0.9);
  EXPECT_EQ(config.learner.importance.exponent, 0.4);
}

// An agent that reads next observations alone.
class NoWindows : public agents::Agent {
 public:
  void Check(const agents::LearningSpec& /*spec*/) const override {}
  graph::Output BuildPolicy(
      graph::Graph& /*graph*/, const agents::TaskSpec& /*task*/,
      const agents::PolicyOptions& /*options*/) const override {
    return {};
  }
  agents::AgentUpdate BuildUpdate(
      nn::ReplicaContext& /*replica*/, const agents::LearningSpec& /*spec*/,
      const agents::TransitionBatch& /*batch*/) const override {
    return {};
  }
  bool IsOfPolicy(std::string_view /*variable*/) const override {
    return false;
  }
};
struct NoWindowsConfig {
  static NoWindowsConfig Read(config::Reader& /*reader*/) { return {}; }
};

// Would catch a user's agent that reads an observation which its batches lack.
TEST(RunConfigTest, AnAgentThatReadsNoWindowsRefusesThem) {
  Registry registry = Registry::BuiltIn();
  registry.workloads.Add(learner::DefineAgent<NoWindowsConfig>(
      "mine", "an agent",
      [](const NoWindowsConfig&) { return std::make_shared<NoWindows>(); }));
  const auto load = [&](int window) {
    return LoadRunConfig(
               config::Document::FromText(
                   "run.yaml",
                   fmt::format("learner: {{workload: mine}}\nreplay: {{tables: "
                               "{{main: {{window: {}, n_step: 1}}}}}}\n",
                               window)),
               registry)
        .config;
  };
  EXPECT_EQ(load(0).SpecOf({}).window, 0);
  EXPECT_EQ(MessageOf<ConfigError>([&] { load(3).SpecOf({}); }),
            "replay.tables.main.window: 3, but agent mine reads no windows; "
            "want 0");
}

// Would catch a run that learns from other images than the user's, or at
// another rate, or without an end, and says nothing.
TEST(RunConfigTest, RefusesWhatAnImageRunWouldIgnore) {
  const Registry registry = Registry::BuiltIn();
  const auto problem = [&](const std::string& workload,
                           const std::string& yaml) {
    return MessageOf<ConfigError>([&] {
      LoadRunConfig(
          config::Document::FromText(
              "run.yaml", "learner: {workload: " + workload + "}\n" + yaml),
          registry);
    });
  };
  EXPECT_THAT(problem("resnet50", "images: {train: /x}\n"),
              HasSubstr("images.train: '/x', but images.source synthetic reads "
                        "no files; hint: images.source: image_folder"));
  EXPECT_THAT(
      problem("sngan", "images: {source: rendered, evaluation: /y}\n"),
      HasSubstr("images.evaluation: '/y', but images.source rendered reads"));
  EXPECT_THAT(problem("resnet50", "resnet50: {optimizer: {total_steps: 9}}\n"),
              HasSubstr("total_steps: belongs to the schedule cosine"));
  EXPECT_THAT(problem("resnet50",
                      "resnet50: {optimizer: {schedule: cosine, total_steps: "
                      "9, decay_steps: [5]}}\n"),
              HasSubstr("decay_steps: belong to the schedule steps"));
  EXPECT_THAT(problem("sngan", "sngan: {optimizer: {decay_begin: 5}}\n"),
              HasSubstr("decay_begin: needs decay_end"));
  EXPECT_THAT(
      MessageOf<ConfigError>([&] {
        LoadRunConfig(
            config::Document::FromText("run.yaml",
                                       "learner: {workload: resnet50, limits: "
                                       "{max_frames: 5}}\n"),
            registry);
      }),
      HasSubstr(
          "max_frames: workload resnet50 has no frames; allowed here: 0"));
}

// Would catch pictures of other sides with as many bytes, which are sheared.
TEST(CheckPriorTest, ImportedPicturesHaveTheSizeOfTheRuns) {
  const TemporaryFolder folder;
  RunConfig config;
  config.replay.prior_folder = folder.path();
  const agents::TaskSpec task{
      .has_pixels = true, .observation = Shape({36, 64, 9}), .frame_stack = 3};
  const auto problem = [&](const std::string& about) {
    AtomicWriteFile(folder.path() / "prior.json", about);
    return MessageOf<ConfigError>([&] { CheckPrior(config, task); });
  };
  EXPECT_EQ(problem(R"({"frame_shapes": [[48, 48, 3]]})"),
            "replay.prior.folder: " + folder.path().string() +
                ": its pictures are [48, 48, 3]; the run's are [36, 64, 3]; "
                "hint: task.pixels.height and task.pixels.width, or pictures "
                "of that size");
  // the next check
  const std::string no_checkpoint =
      ": no checkpoint of a replay; hint: "
      "replicant data import makes one";
  for (const char* const good :
       {R"({"frame_shapes": [[36, 64, 3]]})", R"({"steps": 3})"}) {
    EXPECT_THAT(problem(good), EndsWith(no_checkpoint)) << good;
  }
  EXPECT_THAT(problem("{"), EndsWith("hint: replicant data import writes it"));
}

// Would catch actions that mean others in the run than they did in the data.
TEST(CheckPriorTest, ImportedActionsHaveTheBoundsOfTheRuns) {
  const TemporaryFolder folder;
  RunConfig config;
  config.replay.prior_folder = folder.path();
  const agents::TaskSpec task{.observation = Shape({4}),
                              .action_minimum = {-1.0, -0.1F},
                              .action_maximum = {1.0, 0.3F}};
  const auto problem = [&](const std::string& about) {
    AtomicWriteFile(folder.path() / "prior.json", about);
    return MessageOf<ConfigError>([&] { CheckPrior(config, task); });
  };
  EXPECT_EQ(
      problem(R"({"action_low": [-2.0, -0.1], "action_high": [2.0, 0.3]})"),
      "replay.prior.folder: " + folder.path().string() +
          ": its actions are from [-2, -0.1] to [2, 0.3]; the run's are from "
          "[-1, -0.10000000149011612] to [1, 0.30000001192092896]; hint: "
          "action_low and action_high in the mapping of replicant data import");
  // the next check, also of what an older importer has written
  for (const char* const good :
       {R"({"action_low": [-1.0, -0.1], "action_high": [1.0, 0.3]})",
        R"({"steps": 3})"}) {
    EXPECT_THAT(problem(good), HasSubstr(": no checkpoint of a replay"))
        << good;
  }
}

// Would catch a mistake in the keys that each role finds for itself.
TEST(CheckKeysTest, RefusesKeysThatCannotBeUsed) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "keys";
  RunConfig config;
  EXPECT_NO_THROW(CheckKeys(config));
  config.replay.key_file = config.replay.allowed_clients_file = file;
  config.run.key_file = "";
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckKeys(config); }),
            "replay.key_file: the clients of a run without keys cannot reach a "
            "replay that has one; allowed with run.key_file \"\": empty");
  config.run.key_file = "auto";
  EXPECT_THAT(MessageOf<ConfigError>([&] { CheckKeys(config); }),
              StartsWith("replay.key_file: "));
  config.replay.key_file = "";
  config.run.key_file = file;
  EXPECT_THAT(MessageOf<ConfigError>([&] { CheckKeys(config); }),
              StartsWith("run.key_file: "));
  rpc::WriteKeyPair(file, rpc::GenerateCurveKeyPair());
  EXPECT_NO_THROW(CheckKeys(config));
  std::filesystem::permissions(file, std::filesystem::perms(0644));
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckKeys(config); }),
            "run.key_file: " + file +
                ": mode 0644 lets others read a secret key; hint: chmod 600");
}

// Would catch a host that joins by the folder and misses run.key_file.
TEST(CheckKeysTest, AFolderNamesTheKeyOfItsRun) {
  const TemporaryFolder folder;
  AtomicWriteFile(folder.path() / "state.yaml", "status: running\nstarts: 1\n");
  const auto given = [&](const std::string& yaml) {
    AtomicWriteFile(folder.path() / "config.yaml", yaml);
    return KeyFileOfRun(folder.path());
  };
  EXPECT_EQ(given("run: {key_file: /secure/k}\n"), "/secure/k");
  EXPECT_EQ(given("run: {key_file: auto}\n"), "");  // it has none
  const std::filesystem::path own = folder.path() / "run.key";
  AtomicWriteFile(own, "");
  EXPECT_EQ(given("run: {key_file: auto}\n"), own);
  EXPECT_EQ(given("run: {seed: 1}\n"), own);
  EXPECT_EQ(given("run: {key_file: \"\"}\n"), "");
}

// Each limit on its own, by what the newest checkpoint of an image model says.
TEST(CheckResumeTest, RefusesARunThatIsAtALimit) {
  const TemporaryFolder folder;
  {
    learner::CheckpointFolder checkpoints(folder.path() / "checkpoints", 1);
    checkpoints.Save({}, {.step = 8, .metadata = {}});
    checkpoints.Complete({.step = 8, .id = 1, .seconds = 3.5, .epochs = 2.5});
  }
  const Registry registry = Registry::BuiltIn();
  const Commands commands = Commands::InFolder(".");
  const auto refusal = [&](const std::string& limits) {
    const auto loaded = LoadRunConfig(
        config::Document::FromText(
            "run.yaml", "learner: {workload: resnet50, limits: {" + limits +
                            "}}\nresnet50: {depth: linear, image_size: 8}\n"),
        registry);
    return MessageOf<ConfigError>([&] {
      CheckResume(
          {.registry = registry, .commands = commands, .loaded = loaded},
          /*task=*/{}, folder.path());
    });
  };
  const std::string start =
      "--resume " + folder.path().string() + ": the run is complete: ";
  EXPECT_EQ(refusal("max_epochs: 2.5"),
            start +
                "2.5 epochs have reached learner.limits.max_epochs = 2.5; "
                "hint: --set learner.limits.max_epochs=N trains on to a higher "
                "limit, 0 without one");
  EXPECT_THAT(refusal("max_steps: 8"), StartsWith(start + "8 steps have"));
  EXPECT_THAT(refusal("max_seconds: 3"), StartsWith(start + "3.5 seconds"));
  // nothing but the variables is left to check
  EXPECT_THAT(refusal("max_epochs: 2.6"),
              StartsWith("--resume " + folder.path().string() +
                         ": the configuration does not fit"));
}

// Would catch a launcher that takes the learner's device or the memory of its
// step, or that builds a step with fewer rows than micro_batches.
TEST(CheckResumeTest, TheCheckNeedsNoDevice) {
  const TemporaryFolder folder;
  const Registry registry = Registry::BuiltIn();
  const Commands commands = Commands::InFolder(".");
  const auto load = [&](int batch_size, const char* replication) {
    return LoadRunConfig(
        config::Document::FromText(
            "run.yaml",
            fmt::format("learner: {{workload: resnet50, batch_size: {}, "
                        "replication: {{accumulation_steps: 5, {}}}}}\n"
                        "resnet50: {{depth: linear, image_size: 32, "
                        "micro_batches: 4}}\n",
                        batch_size, replication)),
        registry);
  };
  // what a training has written
  const auto small = load(8, "backend: cpu");
  const auto trained = MakeWorkload(
      {.registry = registry, .commands = commands, .loaded = small},
      replicator::MakeReplicator(small.config.learner.replication, /*seed=*/1),
      /*source=*/nullptr, /*reads_images=*/false);
  learner::CheckpointFolder checkpoints(folder.path() / "checkpoints", 1);
  checkpoints.Save(runtime::CopyVariables(trained->variables()),
                   {.step = 8, .metadata = {}});
  checkpoints.Complete({.step = 8, .id = 1});
  const auto large = load(1'000'000,
                          "strategy: in_graph, replicas: 8, backend: cuda, "
                          "devices: [64]");
  EXPECT_NO_THROW(
      CheckResume({.registry = registry, .commands = commands, .loaded = large},
                  /*task=*/{}, folder.path()));
}

// Would catch a run that each resume refuses, and that never counts as
// complete.
TEST(CheckResumeTest, ARunAtItsOwnLimitIsComplete) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  const Registry registry = Registry::BuiltIn();
  {
    fleet::RunFolder created =
        fleet::RunFolder::Create({.dir = run.string()},
                                 "task: {name: cartpole-swingup}\n"
                                 "learner: {limits: {max_steps: 10}}\n"
                                 "evaluation: {stop_at_return: 500}\n");
    created.NextIncarnation({"actor", 0});
    created.SetStatus(fleet::RunStatus::kStopped);
  }
  learner::CheckpointFolder checkpoints(run / "checkpoints", 1);
  checkpoints.Save({}, {.step = 8, .metadata = {}});
  checkpoints.Complete({.step = 8, .id = 1});
  EXPECT_FALSE(CompleteAtLimit(registry, run));
  EXPECT_EQ(fleet::RunFolder::StatusOf(run), fleet::RunStatus::kStopped);

  evaluation::EvaluationLog(run, 0.0).Write({.step = 8, .mean = 501.0});
  EXPECT_TRUE(CompleteAtLimit(registry, run));
  EXPECT_EQ(ReadFile(run / "state.yaml"),
            "status: complete\nstarts: 1\nroles:\n  actor-0: {last: 1}\n");

  AtomicWriteFile(run / "state.yaml", "status: failed\nstarts: 1\n");
  EXPECT_FALSE(CompleteAtLimit(registry, run));
  EXPECT_EQ(fleet::RunFolder::StatusOf(run), fleet::RunStatus::kFailed);
}

// A service takes them; the clients of a run could not use them.
TEST(CheckReplayTest, RefusesWhatTheClientsOfARunCannotUse) {
  EXPECT_NO_THROW(CheckReplay(ReadReplay("{}"), 256));
  EXPECT_NO_THROW(CheckReplay(ReadReplay("tables: {main: {}}"), 256));
  const auto tables = ReadReplay("tables: {default: {}, fresh: {}}");
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckReplay(tables, 256); }),
            "replay.tables: default, fresh: the learner samples one table, and "
            "a table without samples would stop the actors; allowed in a run: "
            "one table");
  const auto small = ReadReplay(
      "tables: {main: {max_size: 100, rate_limiter: {min_size_to_sample: "
      "10}}}");
  EXPECT_NO_THROW(CheckReplay(small, 100));
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckReplay(small, 101); }),
            "learner.batch_size: 101 is more than replay.tables.main.max_size "
            "= 100: the table can never hold that many items");
}

// The replay's rewards and pictures would have two meanings.
TEST(CheckSameRunTest, ARunKeepsWhatItsReplayMeans) {
  std::string text =
      "task: {name: cheetah-run, action_repeat: 4, pixels: {enabled: "
      "true}}\n";
  const auto load = [&text](const std::string& more) {
    return LoadRunConfig(config::Document::FromText("c", text, {more}),
                         Registry::BuiltIn());
  };
  const TemporaryFolder folder;
  using KeyOtherWas = std::tuple<std::string, std::string, std::string>;
  const auto expect_refused = [&](const std::vector<KeyOtherWas>& cases) {
    AtomicWriteFile(folder.path() / "config.yaml",
                    load("log.level=info").resolved_yaml);
    for (const auto& [key, other, was] : cases) {
      const auto loaded = load(fmt::format("{}={}", key, other));
      EXPECT_EQ(MessageOf<ConfigError>([&] {
                  CheckSameRun(loaded.config, loaded.resolved_yaml,
                               folder.path());
                }),
                fmt::format("{}: {}, but the run in {} has {}; hint: --config "
                            "FILE with --set run.dir=FOLDER begins another run",
                            key, other, folder.path().string(), was));
    }
  };
  expect_refused({{"task.name", "walker-walk", "cheetah-run"},
                  {"task.action_repeat", "2", "4"},
                  {"task.action_repeat_reward", "sum", "mean"},
                  {"task.pixels.height", "64", "84"},
                  {"task.pixels.width", "64", "84"},
                  {"task.pixels.camera", "back", "0"},
                  {"task.pixels.frame_stack", "2", "3"},
                  {"task.pixels.state", "true", "false"}});
  text =
      "task: {name: cheetah-run, observations: [position, velocity], pixels: "
      "{enabled: true, state: true, cameras: [side, back], widths: [84, "
      "84]}}\n"
      "replay: {tables: {default: {n_step: 3, discount: 0.99, window: "
      "8}}}\n";
  expect_refused(
      {{"task.observations", "[velocity, position]", "[position, velocity]"},
       {"task.pixels.cameras", "[back, side]", "[side, back]"},
       {"task.pixels.widths", "[64, 84]", "[84, 84]"},
       {"task.pixels.heights", "[64, 84]", "[]"},
       {"replay.tables.default.n_step", "4", "3"},
       {"replay.tables.default.discount", "0.9", "0.99"},
       {"replay.tables.default.window", "9", "8"},
       {"replay.tables.default.period", "2", "1"}});
}

// Would catch a run that another way to write its view makes another run.
TEST(CheckSameRunTest, AViewMayBeWrittenInOtherWords) {
  const TemporaryFolder folder;
  const auto load = [](const std::string& pixels) {
    return LoadRunConfig(
        config::Document::FromText(
            "c", fmt::format("task: {{name: cheetah-run, pixels: {{enabled: "
                             "true, {}}}}}\n",
                             pixels)),
        Registry::BuiltIn());
  };
  for (const auto& [before, now] :
       {std::pair("cameras: [side, back], height: 64",
                  "cameras: [side, back], heights: [64, 64], height: 32"),
        std::pair("camera: side", "cameras: [side], widths: [84]")}) {
    for (const auto& [was, is] : {std::pair(before, now), {now, before}}) {
      AtomicWriteFile(folder.path() / "config.yaml", load(was).resolved_yaml);
      const auto loaded = load(is);
      EXPECT_NO_THROW(
          CheckSameRun(loaded.config, loaded.resolved_yaml, folder.path()))
          << was << " and " << is;
    }
  }
}

}  // namespace
}  // namespace replicant::programs
