#include "programs/replay/replay_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/process.h"
#include "base/rpc/client.h"
#include "base/rpc/group_key.h"
#include "base/thread.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "fleet/run_folder.h"
#include "programs/run/stop_on_exit.h"
#include "replay/checkpoint/shard_folder.h"
#include "replay/service/replay_config.h"
#include "replay/service/service.h"
#include "replay/service/service_status.h"
#include "replay/service/service_upkeep.h"

namespace replicant::programs {
namespace {

// Files that a service has open besides its writers' connections.
constexpr int64_t kOtherFiles = 100;

// A service, and how a client reaches it.
struct Service {
  std::string endpoint;
  rpc::CurveRole client_role;
};

void PrintStatus(const Service& service) {
  const std::string& endpoint = service.endpoint;
  rpc::ZmqContext context;
  rpc::Client client(
      context, replay::ReplayProtocol(),
      {.socket = {.curve = service.client_role}, .name = "replay --status"});
  client.Connect(endpoint);
  const rpc::CallReply reply =
      client.Call(replay::kStatusKind, {},
                  {.timeout = std::chrono::seconds(5), .is_idempotent = true});
  if (reply.result != rpc::CallResult::kOk) {
    throw CommError(fmt::format("{}: no answer within 5 s{}{}", endpoint,
                                reply.error_text.empty() ? "" : ": ",
                                reply.error_text));
  }
  std::fputs(replay::StatusText(
                 rpc::DecodeMessage<replay::StatusReply>(reply.payload).json)
                 .c_str(),
             stdout);
}

// The services that --status names: an endpoint without keys, or the folder of
// a run, whose config.yaml holds every key of the configuration.
std::vector<Service> FindServices(const std::string& given) {
  if (given.find("://") != std::string::npos) return {{given, {}}};
  if (!std::filesystem::exists(given)) {
    throw IoError(
        fmt::format("--status {}: neither an address, such as "
                    "tcp://127.0.0.1:7001, nor the "
                    "folder of a run",
                    given));
  }
  const std::filesystem::path run = fleet::RunFolder::Find(given);
  if (const auto status = fleet::RunFolder::StatusOf(run);
      status && *status != fleet::RunStatus::kRunning) {
    throw IoError(fmt::format(
        "--status {}: the run has ended ({}), and its replay with it", given,
        fleet::ToString(*status)));
  }
  const RunConfig config = ReplayOfRun(run);
  std::vector<Service> services;
  for (const std::string& endpoint : config.replay.Endpoints()) {
    services.push_back({endpoint, ReplayClientRole(config)});
  }
  return services;
}

int PrintStatusOf(const std::string& given) {
  const std::vector<Service> services = FindServices(given);
  for (size_t i = 0; i < services.size(); ++i) {
    if (services.size() > 1) {
      std::printf("%sshard %zu at %s\n", i == 0 ? "" : "\n", i,
                  services[i].endpoint.c_str());
    }
    PrintStatus(services[i]);
  }
  return 0;
}

// The service's own pair, or the run's.
rpc::CurveRole ServerRole(const replay::ReplayConfig& config,
                          const rpc::GroupKey& key) {
  if (config.key_file.empty()) return key.server_role();
  return rpc::CurveServer{rpc::ReadKeyPair(config.key_file)};
}

// Admits the processes of the run and the clients of the service's list;
// nullptr without keys.
std::unique_ptr<rpc::ZapHandler> MakeGuard(const replay::ReplayConfig& config,
                                           const rpc::GroupKey& key,
                                           rpc::ZmqContext& context) {
  std::vector<std::string> others;
  if (!config.key_file.empty()) {
    others = rpc::ReadPublicKeys(config.allowed_clients_file);
    if (!key.is_set()) {
      return std::make_unique<rpc::ZapHandler>(context, others);
    }
  }
  return key.MakeGuard(context, others);
}

rpc::ServerOptions ServerOptionsOf(const replay::ReplayConfig& config,
                                   const rpc::CurveRole& role) {
  rpc::ServerOptions options;
  options.tick_interval = std::chrono::milliseconds(10);
  options.peer_timeout = FromSeconds(config.peer_timeout_s);
  options.socket.curve = role;
  return options;
}

// Whether a signal or the supervisor has asked for the end.
bool IsStopped(const StopSignal& stop,
               const fleet::HeartbeatSender& heartbeat) {
  return stop.count() > 0 || heartbeat.StopOrder();
}

// Restores the shard. Throws as Checkpointer, RestoreStopped once IsStopped().
std::unique_ptr<replay::Checkpointer> MakeCheckpointer(
    const replay::ReplayConfig& config, const StopSignal& stop,
    replay::Shard* shard, fleet::HeartbeatSender* heartbeat) {
  if (config.checkpoint_folder.empty()) return nullptr;
  replay::CheckpointOptions options;
  options.folder = config.checkpoint_folder;
  options.durability = config.durability;
  options.num_kept = config.num_kept_checkpoints;
  options.restore_id = static_cast<uint64_t>(config.restore_checkpoint);
  // the supervisor waits for a restore as long as it makes progress
  heartbeat->SetState(fleet::RoleState::kStarting, "restores the replay");
  options.on_restored_chunk = [heartbeat, &stop, num_chunks = 0.0]() mutable {
    heartbeat->SetCounter("restored_groups", ++num_chunks);
    return !IsStopped(stop, *heartbeat);
  };
  auto checkpointer = std::make_unique<replay::Checkpointer>(options, shard);
  const replay::RestoreReport& report = checkpointer->restored();
  for (const std::string& problem : report.problems) {
    spdlog::warn("checkpoint: {}", problem);
  }
  if (report.number.has_value() || report.journal_chunks > 0) {
    spdlog::info(
        "restored checkpoint {}{} and {} chunks of the journal: {} steps "
        "taken in so far, {} writers open",
        report.number.value_or(0),
        report.id == 0 ? "" : fmt::format(" of id {}", report.id),
        report.journal_chunks, shard->num_steps(), shard->OpenWriters().size());
  }
  return checkpointer;
}

// Returns the samples per insert of the first table since the first sample;
// nothing before that.
std::optional<double> SamplesPerInsert(const replay::ShardStatus& status) {
  const replay::TableStatus& table = status.tables.at(0);
  const int64_t inserts = table.inserts - table.min_size_to_sample;
  if (inserts <= 0 || table.samples == 0) return std::nullopt;
  return static_cast<double>(table.samples) / static_cast<double>(inserts);
}

// Reports the state of the service, and which side waits, to the supervisor.
void Beat(const replay::ShardStatus& status,
          fleet::HeartbeatSender* heartbeat) {
  heartbeat->SetCounter("steps", static_cast<double>(status.inserted_steps));
  heartbeat->SetGauge("bytes", static_cast<double>(status.size_bytes));
  double num_items = 0.0;
  const replay::WaitStatus* wait =
      status.room_wait.is_waiting ? &status.room_wait : nullptr;
  for (const replay::TableStatus& table : status.tables) {
    num_items += static_cast<double>(table.size);
    for (const replay::WaitStatus* side :
         {&table.insert_wait, &table.sample_wait}) {
      if (side->is_waiting && wait == nullptr) wait = side;
    }
  }
  heartbeat->SetGauge("items", num_items);
  if (const auto ratio = SamplesPerInsert(status)) {
    heartbeat->SetGauge("samples_per_insert", *ratio);
  }
  if (wait != nullptr) {
    heartbeat->SetState(fleet::RoleState::kWaiting, wait->why);
  } else {
    heartbeat->SetState(fleet::RoleState::kRunning);
  }
}

// Waits for a stop signal; serves metrics and saves checkpoints meanwhile.
// Rethrows the exception that has ended `loop`, which serves.
void RunUntilStopped(const replay::ReplayConfig& config, const StopSignal& stop,
                     const replay::Shard& shard, const rpc::Server& server,
                     replay::CheckpointSaver* saver, Thread* loop,
                     fleet::HeartbeatSender* heartbeat) {
  replay::ServiceUpkeep upkeep(config, &server, saver);
  while (!IsStopped(stop, *heartbeat)) {
    if (!loop->IsRunning()) {
      loop->Join();
      throw CommError("replay: the loop that serves has ended");
    }
    const replay::ShardStatus status = shard.Status();
    Beat(status, heartbeat);
    pollfd waiting = {stop.fd(), POLLIN, 0};
    const auto timeout =
        std::chrono::ceil<std::chrono::milliseconds>(upkeep.Run(status));
    poll(&waiting, 1, static_cast<int>(timeout.count()));
  }
}

// Binds replay.bind, and returns the endpoint. Throws as Server::Bind(), and
// ConfigError for a name that other hosts do not reach.
std::string Bind(const std::string& endpoint, rpc::Server* server) {
  try {
    return server->Bind(endpoint);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("replay.bind: {}", error.what()));
  }
}

// Serves shard `index` of the run's replay.
int Serve(const RunConfig& run_config, int64_t index) {
  const replay::ReplayConfig config = run_config.replay.OfShard(index);
  if (!run_config.replay.checkpoint_folder.empty()) {
    replay::CheckNumShards(run_config.replay.checkpoint_folder,
                           run_config.replay.shards);
  }
  // a connection for each environment's writer
  CheckFileLimit("actors.environments",
                 kOtherFiles + run_config.actors.count *
                                   run_config.actors.environments /
                                   run_config.replay.shards);
  const StopSignal stop;
  fleet::HeartbeatSender heartbeat(
      fleet::HeartbeatSenderOptions::FromEnvironment(
          {.id = {"replay", static_cast<uint32_t>(index)}}));
  replay::Shard shard(config.MakeShardConfig(), &Clock::Real());
  const auto checkpointer = MakeCheckpointer(config, stop, &shard, &heartbeat);
  const auto key = rpc::GroupKey::FromFile(KeyFileOf(run_config));
  rpc::ZmqContext context;
  const auto guard = MakeGuard(config, key, context);
  const rpc::ServerOptions options =
      ServerOptionsOf(config, ServerRole(config, key));
  rpc::Server server(context, replay::ReplayProtocol(), options);
  replay::ServiceOptions service_options;
  service_options.credits = static_cast<uint32_t>(config.credits);
  service_options.shares_memory = config.shared_memory;
  service_options.encode_threads = config.encode_threads;
  service_options.return_timeout = 3 * options.peer_timeout;
  replay::Service service(&shard, service_options, &Clock::Real());
  std::optional<replay::CheckpointSaver> saver;
  if (checkpointer != nullptr) {
    saver.emplace(&shard, checkpointer.get());
    service.SetCheckpointSaver(&*saver);
  }
  service.AttachTo(server);
  spdlog::info("listening at {}", Bind(config.bind, &server));
  Thread loop("replay", [&](const Thread::StopToken&) { server.Run(); });
  const StopOnExit stop_on_exit{server};

  RunUntilStopped(config, stop, shard, server, saver ? &*saver : nullptr, &loop,
                  &heartbeat);
  heartbeat.SetState(fleet::RoleState::kDraining, "the last checkpoint");
  spdlog::info("stopping");
  // no insert after this point: the last checkpoint holds all that was
  // acknowledged
  std::promise<void> is_closed;
  server.Post([&] {
    service.Close();
    is_closed.set_value();
  });
  is_closed.get_future().wait();
  // all that was ever taken in
  heartbeat.SetCounter("steps",
                       static_cast<double>(shard.Status().inserted_steps));
  if (saver.has_value()) {
    // checkpoints that clients asked for go first, so that the last is the
    // newest
    saver->Finish();
    try {
      spdlog::info("saved checkpoint {}", checkpointer->Save());
    } catch (const IoError& e) {
      throw IoError(fmt::format(
          "the last checkpoint was not saved: {}; number {} stays the newest",
          e.what(), checkpointer->last_number()));
    }
  }
  return 0;
}

}  // namespace

Program ReplayProgram() {
  const auto status_endpoint = std::make_shared<std::string>();
  const auto index_text = std::make_shared<std::string>("0");
  return {
      .name = "replay",
      .about = "Stores the steps of actors and serves batches to learners.",
      .add_options =
          [status_endpoint, index_text](config::CommandLine& command_line) {
            command_line.AddOption("--index", index_text.get(),
                                   "serve this shard, less than replay.shards");
            command_line.AddOption(
                "--status", status_endpoint.get(),
                "print the status of the service at this address, or of the "
                "run in this folder, without --config");
          },
      .run =
          [status_endpoint, index_text](const Invocation& invocation) {
            if (!status_endpoint->empty()) {
              return PrintStatusOf(*status_endpoint);
            }
            const RunConfig& config = invocation.config();
            try {
              return Serve(config, ParseInteger("--index", *index_text,
                                                {0, config.replay.shards - 1}));
            } catch (const replay::RestoreStopped& stopped) {
              // nothing is new, so nothing is to be saved
              spdlog::info("{}", stopped.what());
              return 0;
            }
          },
      .run_without_config =
          [](int argc, const char* const* argv, const Registry& /*registry*/,
             const Commands& /*commands*/) -> std::optional<int> {
        if (argc != 3 || std::string_view(argv[1]) != "--status") {
          return std::nullopt;
        }
        return PrintStatusOf(argv[2]);
      }};
}

}  // namespace replicant::programs
