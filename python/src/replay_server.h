#pragma once

#include <memory>
#include <optional>
#include <semaphore>
#include <string>

#include "base/mutex.h"
#include "base/rpc/server.h"
#include "base/rpc/zap.h"
#include "base/thread.h"
#include "replay/checkpoint/checkpoint_saver.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/service/replay_config.h"
#include "replay/service/service.h"
#include "replay/service/service_upkeep.h"
#include "replay/table/shard.h"

namespace replicant::python {

// A replay service in threads of this process. With a checkpoint folder it
// restores the newest checkpoint, and saves one when it ends.
//
// Thread-safety: all methods may be called from any thread.
class ReplayServer {
 public:
  // `yaml` is the section `replay` of a configuration, of one shard. Throws
  // ConfigError that lists every problem, CommError if it cannot bind, IoError
  // if a checkpoint cannot be restored.
  explicit ReplayServer(const std::string& yaml);
  // As Close(), but logs what that throws.
  ~ReplayServer();
  ReplayServer(const ReplayServer&) = delete;
  ReplayServer& operator=(const ReplayServer&) = delete;

  const std::string& endpoint() const { return endpoint_; }

  // Ends the service, frees its address, saves the last checkpoint and frees
  // its folder. Throws IoError if the checkpoint cannot be written; another
  // call tries again. Does nothing once it is saved.
  void Close() EXCLUDES(mutex_);

 private:
  // Ends all but the shard and the checkpointer.
  void Stop() REQUIRES(mutex_);

  const replay::ReplayConfig config_;
  replay::Shard shard_;
  std::unique_ptr<replay::Checkpointer> checkpointer_;  // null: no folder
  std::string endpoint_;
  Mutex mutex_;  // held by Close()
  // none once it has ended
  std::optional<rpc::ZmqContext> context_;
  std::optional<rpc::ZapHandler> zap_;
  std::optional<rpc::Server> server_;
  std::optional<replay::CheckpointSaver> saver_;
  std::optional<replay::Service> service_;
  std::optional<replay::ServiceUpkeep> upkeep_;
  std::binary_semaphore upkeep_ends_{0};
  // last: they use all of the above
  std::optional<Thread> upkeep_thread_, loop_;
};

}  // namespace replicant::python
