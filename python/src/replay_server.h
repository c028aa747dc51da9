#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/thread.h"
#include "core/rpc/server.h"
#include "core/rpc/zap.h"
#include "replay/checkpoint/checkpoint_saver.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/service/replay_config.h"
#include "replay/service/service.h"
#include "replay/table/shard.h"

namespace replicant::python {

// A replay service in threads of this process. With a checkpoint folder it
// restores the newest checkpoint, and saves one when it ends; checkpoints in
// between are those that readers ask for.
//
// Thread-safety: Close() and the destructor by one thread, the rest by any.
class ReplayServer {
 public:
  // `yaml` is the section `replay` of a configuration. Throws ConfigError that
  // lists every problem, CommError if it cannot bind, IoError if a checkpoint
  // cannot be restored.
  explicit ReplayServer(const std::string& yaml);
  // As Close(), but logs what that throws.
  ~ReplayServer();
  ReplayServer(const ReplayServer&) = delete;
  ReplayServer& operator=(const ReplayServer&) = delete;

  const std::string& endpoint() const { return endpoint_; }

  // Ends the service and saves the last checkpoint. Throws IoError if that
  // cannot be written. A second call does nothing.
  void Close();

 private:
  const replay::ReplayConfig config_;
  replay::Shard shard_;
  std::unique_ptr<replay::Checkpointer> checkpointer_;  // null: no folder
  rpc::ZmqContext context_;
  std::optional<rpc::ZapHandler> zap_;
  rpc::Server server_;
  replay::Service service_;
  std::optional<replay::CheckpointSaver> saver_;
  std::string endpoint_;
  bool is_closed_ = false;
  std::optional<Thread> loop_;  // last: it uses all of the above
};

}  // namespace replicant::python
