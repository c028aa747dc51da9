// The replay service as a program: `replay --config FILE`, and
// `replay --status ADDRESS` to look at one that runs.
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/thread.h"
#include "core/config/command_line.h"
#include "core/config/load.h"
#include "core/metrics/exposer.h"
#include "core/rpc/client.h"
#include "core/rpc/heartbeat_sender.h"
#include "core/rpc/zap.h"
#include "replay/service/replay_config.h"
#include "replay/service/service.h"
#include "replay/service/service_metrics.h"
#include "replay/service/service_status.h"

namespace replicant::replay {
namespace {

int PrintStatus(const std::string& endpoint) {
  rpc::ZmqContext context;
  rpc::Client client(context, ReplayProtocol(), {.name = "replay --status"});
  client.Connect(endpoint);
  const rpc::CallReply reply =
      client.Call(kStatusKind, {},
                  {.timeout = std::chrono::seconds(5), .is_idempotent = true});
  if (reply.result != rpc::CallResult::kOk) {
    throw CommError(fmt::format("{}: no answer within 5 s{}{}", endpoint,
                                reply.error_text.empty() ? "" : ": ",
                                reply.error_text));
  }
  std::fputs(StatusText(StatusReply::Decode(reply.payload).json).c_str(),
             stdout);
  return 0;
}

rpc::ServerOptions ServerOptionsOf(const ReplayConfig& config) {
  rpc::ServerOptions options;
  options.tick_interval = std::chrono::milliseconds(10);
  options.peer_timeout = std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(config.peer_timeout_s));
  if (!config.key_file.empty()) {
    options.socket.curve = rpc::CurveServer{rpc::ReadKeyPair(config.key_file)};
  }
  return options;
}

std::unique_ptr<Checkpointer> MakeCheckpointer(const ReplayConfig& config,
                                               Shard* shard) {
  if (config.checkpoint_folder.empty()) return nullptr;
  CheckpointOptions options;
  options.folder = config.checkpoint_folder;
  options.durability = config.durability;
  options.num_kept = config.num_kept_checkpoints;
  options.restore_id = static_cast<uint64_t>(config.restore_checkpoint);
  auto checkpointer = std::make_unique<Checkpointer>(options, shard);
  const RestoreReport& report = checkpointer->restored();
  for (const std::string& problem : report.problems) {
    spdlog::warn("checkpoint: {}", problem);
  }
  if (report.number.has_value() || report.journal_groups > 0) {
    spdlog::info(
        "restored checkpoint {}{} and {} step groups of the journal: {} steps "
        "taken in so far, {} writers open",
        report.number.value_or(0),
        report.id == 0 ? "" : fmt::format(" of id {}", report.id),
        report.journal_groups, shard->num_steps(), shard->OpenWriters().size());
  }
  return checkpointer;
}

// A checkpoint that fails costs no service: the one before is still there.
void SaveCheckpoint(Checkpointer& checkpointer) {
  try {
    spdlog::info("saved checkpoint {}", checkpointer.Save());
  } catch (const IoError& e) {
    spdlog::error("checkpoint: {}", e.what());
  }
}

// How often an item of the first table was drawn since draws began; nothing
// before that.
std::optional<double> SamplesPerInsert(const ShardConfig& config,
                                       const ShardStatus& status) {
  const TableStatus& table = status.tables.at(0);
  const int64_t inserts =
      table.inserts - config.tables.at(0).rate_limiter.min_size_to_sample;
  if (inserts <= 0 || table.samples == 0) return std::nullopt;
  return static_cast<double>(table.samples) / static_cast<double>(inserts);
}

// Tells a supervisor how the service does, and who waits for it.
void Beat(const ShardConfig& config, const ShardStatus& status,
          rpc::HeartbeatSender* heartbeat) {
  heartbeat->SetCounter("steps", static_cast<double>(status.inserted_steps));
  heartbeat->SetGauge("bytes", static_cast<double>(status.size_bytes));
  double num_items = 0.0;
  const WaitStatus* wait = nullptr;
  for (const TableStatus& table : status.tables) {
    num_items += static_cast<double>(table.size);
    for (const WaitStatus* side : {&table.insert_wait, &table.sample_wait}) {
      if (side->is_waiting && wait == nullptr) wait = side;
    }
  }
  heartbeat->SetGauge("items", num_items);
  if (const auto ratio = SamplesPerInsert(config, status)) {
    heartbeat->SetGauge("samples_per_insert", *ratio);
  }
  if (wait != nullptr) {
    heartbeat->SetState(rpc::RoleState::kWaiting, wait->why);
  } else {
    heartbeat->SetState(rpc::RoleState::kRunning);
  }
}

// Waits for a stop signal, and does what has to be done meanwhile.
void RunUntilStopped(const ReplayConfig& config, const StopSignal& stop,
                     const Shard& shard, const rpc::Server& server,
                     CheckpointSaver* saver, rpc::HeartbeatSender* heartbeat) {
  metrics::Registry registry;
  std::optional<metrics::Exposer> exposer;
  if (!config.metrics_address.empty()) {
    exposer.emplace(metrics::ExposerOptions{config.metrics_address}, registry);
    spdlog::info("metrics at {}", exposer->Url());
  }
  ServiceMetrics service_metrics(&registry);
  const ShardConfig shard_config = config.MakeShardConfig();
  Clock& clock = Clock::Real();
  const auto interval = std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(config.checkpoint_interval_s));
  Clock::TimePoint next_checkpoint = clock.Now() + interval;
  while (stop.count() == 0 && !heartbeat->StopOrder()) {
    const ShardStatus status = shard.Status();
    service_metrics.Update(status, server.metrics());
    Beat(shard_config, status, heartbeat);
    pollfd waiting = {stop.fd(), POLLIN, 0};
    auto timeout = std::chrono::milliseconds(500);
    if (saver != nullptr && interval.count() > 0) {
      timeout =
          std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(
                         next_checkpoint - clock.Now()),
                     std::chrono::milliseconds(1), timeout);
    }
    poll(&waiting, 1, static_cast<int>(timeout.count()));
    if (saver != nullptr && interval.count() > 0 &&
        clock.Now() >= next_checkpoint &&
        saver->Start(/*id=*/0, /*done=*/nullptr)) {
      next_checkpoint = clock.Now() + interval;
    }
  }
}

// Ends the server's loop before the thread that runs it is joined.
struct StopOnExit {
  rpc::Server& server;
  ~StopOnExit() { server.Stop(); }
};

int Serve(const ReplayConfig& config) {
  const StopSignal stop;
  rpc::HeartbeatSender heartbeat(
      rpc::HeartbeatSenderOptions::FromEnvironment({.id = {"replay", 0}}));
  Shard shard(config.MakeShardConfig(), &Clock::Real());
  const auto checkpointer = MakeCheckpointer(config, &shard);
  rpc::ZmqContext context;
  std::optional<rpc::ZapHandler> zap;
  if (!config.key_file.empty()) {
    zap.emplace(context, rpc::ReadPublicKeys(config.allowed_clients_file));
  }
  rpc::Server server(context, ReplayProtocol(), ServerOptionsOf(config));
  ServiceOptions service_options;
  service_options.credits = static_cast<uint32_t>(config.credits);
  service_options.shares_memory = config.shared_memory;
  service_options.encode_threads = config.encode_threads;
  service_options.return_timeout = 3 * ServerOptionsOf(config).peer_timeout;
  Service service(&shard, service_options, &Clock::Real());
  std::optional<CheckpointSaver> saver;
  if (checkpointer != nullptr) {
    saver.emplace(&shard, checkpointer.get());
    service.SetCheckpointSaver(&*saver);
  }
  service.AttachTo(server);
  spdlog::info("listening at {}", server.Bind(config.bind));
  Thread loop("replay", [&](const Thread::StopToken&) { server.Run(); });
  const StopOnExit stop_on_exit{server};

  RunUntilStopped(config, stop, shard, server, saver ? &*saver : nullptr,
                  &heartbeat);
  heartbeat.SetState(rpc::RoleState::kDraining, "the last checkpoint");
  spdlog::info("stopping");
  // what was acknowledged is in the checkpoint: nothing is taken in after it
  std::promise<void> is_closed;
  server.Post([&] {
    service.Close();
    is_closed.set_value();
  });
  is_closed.get_future().wait();
  if (saver.has_value()) {
    // those that clients asked for go first, so that the last is the newest
    saver->Finish();
    SaveCheckpoint(*checkpointer);
  }
  return 0;
}

int Main(int argc, char** argv) {
  config::CommandLine command_line(
      "replay", "Holds the steps of actors and serves batches to learners.");
  std::string status_endpoint;
  command_line.AddOption("--status", &status_endpoint,
                         "print the status of the service at this address, "
                         "without --config");
  // needs no configuration
  if (argc == 3 && std::string_view(argv[1]) == "--status") {
    return PrintStatus(argv[2]);
  }
  const config::Arguments arguments =
      command_line.Parse(argc, argv, config::Describe<ReplayMainConfig>());
  if (!arguments.text_to_print.empty()) {
    std::fputs(arguments.text_to_print.c_str(), stdout);
    return 0;
  }
  if (!status_endpoint.empty()) return PrintStatus(status_endpoint);
  const auto loaded = config::Load<ReplayMainConfig>(
      config::Document::FromFile(arguments.config_file, arguments.overrides));
  InitLogging(loaded.config.log);
  return Serve(loaded.config.replay);
}

}  // namespace
}  // namespace replicant::replay

int main(int argc, char** argv) {
  try {
    return replicant::replay::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "replay: %s\n", e.what());
    return 1;
  }
}
