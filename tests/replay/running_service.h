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
// own.
class RunningService {
 public:
  explicit RunningService(ShardConfig config,
                          const std::string& endpoint = "tcp://127.0.0.1:*",
                          rpc::ServerOptions server_options = FastTicks(),
                          ServiceOptions options = {})
      : shard_(std::move(config), &Clock::Real()),
        service_(&shard_, options, &Clock::Real()),
        server_(
            ReplayProtocol(), endpoint,
            [this](rpc::Server& server) { service_.AttachTo(server); },
            server_options) {}

  static rpc::ServerOptions FastTicks() {
    rpc::ServerOptions options;
    options.tick_interval = std::chrono::milliseconds(5);
    return options;
  }

  Shard& shard() { return shard_; }
  const std::string& endpoint() const { return server_.endpoint(); }
  rpc::testing::RunningServer& server() { return server_; }

  void Close() {
    server_.server().Post([this] { service_.Close(); });
  }

 private:
  Shard shard_;
  Service service_;
  rpc::testing::RunningServer server_;
};

}  // namespace replicant::replay::testing
