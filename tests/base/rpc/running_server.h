#pragma once

#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "base/rpc/server.h"
#include "base/thread.h"

namespace replicant::rpc::testing {

// A server whose loop runs in a separate thread and context, so that its port
// is free again once it is destroyed.
class RunningServer {
 public:
  RunningServer(const Protocol& protocol, const std::string& endpoint,
                const std::function<void(Server&)>& set_up,
                const ServerOptions& options = {})
      : server_(context_, protocol, options) {
    set_up(server_);
    endpoint_ = server_.Bind(endpoint);
    loop_.emplace("server", [this](const auto&) { server_.Run(); });
  }
  ~RunningServer() { Stop(); }

  void Stop() {
    server_.Stop();
    loop_->Join();
  }

  // The metrics after everything that the loop has begun so far.
  ServerMetrics metrics() {
    std::promise<void> is_run;
    server_.Post([&] { is_run.set_value(); });
    is_run.get_future().wait();
    return server_.metrics();
  }

  const std::string& endpoint() const { return endpoint_; }
  Server& server() { return server_; }

 private:
  ZmqContext context_;
  Server server_;
  std::string endpoint_;
  std::optional<Thread> loop_;
};

}  // namespace replicant::rpc::testing
