#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "replay/service/service.h"
#include "replay/table/shard.h"
#include "tests/base/rpc/running_server.h"
#include "tests/replay/episodes.h"
#include "tests/support/own_address.h"

namespace replicant::replay::testing {

inline Clock::TimePoint After(Clock::Duration time) {
  return Clock::Real().Now() + time;
}

// One table, "default", that can be sampled from its first item on.
inline ShardConfig OpenTable(const EpisodeMaker& maker,
                             const NStepConfig& n_step) {
  ShardConfig config;
  config.shape = maker.shape;
  config.tables = {{.name = "default",
                    .max_size = 100'000,
                    .priority_exponent = 1.0,
                    .n_step = n_step,
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

// A shard with its service, served on a port of this host in a separate thread,
// by the clock of the server's options; with `checkpoints.folder`, restored
// from there and saved there.
class RunningService {
 public:
  explicit RunningService(
      ShardConfig config,
      const std::string& endpoint = replicant::testing::OwnAddress(),
      const rpc::ServerOptions& server_options = FastTicks(),
      ServiceOptions options = {}, const CheckpointOptions& checkpoints = {})
      : shard_(std::move(config), server_options.clock),
        checkpointer_(
            checkpoints.folder.empty()
                ? nullptr
                : std::make_unique<Checkpointer>(checkpoints, &shard_)),
        saver_(checkpointer_ == nullptr ? nullptr
                                        : std::make_unique<CheckpointSaver>(
                                              &shard_, checkpointer_.get())),
        service_(&shard_, options, server_options.clock),
        server_(
            ReplayProtocol(), endpoint,
            [this](rpc::Server& server) {
              service_.SetCheckpointSaver(saver_.get());
              service_.AttachTo(server);
            },
            server_options) {}
  ~RunningService() {
    // the saver's last answers go to the server
    server_.Stop();
    if (saver_ != nullptr) saver_->Finish();
  }

  static rpc::ServerOptions FastTicks() {
    rpc::ServerOptions options;
    options.tick_interval = std::chrono::milliseconds(5);
    return options;
  }

  Shard& shard() { return shard_; }
  Checkpointer& checkpointer() { return *checkpointer_; }
  const std::string& endpoint() const { return server_.endpoint(); }
  rpc::testing::RunningServer& server() { return server_; }

  // As of a moment after the call.
  ServiceCounts counts() {
    std::promise<ServiceCounts> counts;
    server_.server().Post([&] { counts.set_value(service_.counts()); });
    return counts.get_future().get();
  }

  void Close() {
    server_.server().Post([this] { service_.Close(); });
  }

 private:
  Shard shard_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<CheckpointSaver> saver_;
  Service service_;
  rpc::testing::RunningServer server_;
};

}  // namespace replicant::replay::testing
