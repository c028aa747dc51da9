#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "replay/service.h"
#include "replay/shard.h"
#include "tests/core/rpc/running_server.h"

namespace replicant::replay::testing {

// A shard with its service, served on a port of this host in a thread of its
// own; with `checkpoints.folder`, restored from there and saved there.
class RunningService {
 public:
  explicit RunningService(ShardConfig config,
                          const std::string& endpoint = "tcp://127.0.0.1:*",
                          rpc::ServerOptions server_options = FastTicks(),
                          ServiceOptions options = {},
                          const CheckpointOptions& checkpoints = {})
      : shard_(std::move(config), &Clock::Real()),
        checkpointer_(
            checkpoints.folder.empty()
                ? nullptr
                : std::make_unique<Checkpointer>(checkpoints, &shard_)),
        saver_(checkpointer_ == nullptr ? nullptr
                                        : std::make_unique<CheckpointSaver>(
                                              &shard_, checkpointer_.get())),
        service_(&shard_, options, &Clock::Real()),
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
