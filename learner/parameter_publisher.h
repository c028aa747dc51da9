#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/rpc/group_key.h"
#include "base/rpc/publisher.h"
#include "base/rpc/socket.h"
#include "base/thread.h"

namespace replicant::learner {

// Publishes sets of variables (engine/runtime/parameters.h) from its own
// thread. A new subscriber receives the newest value at once, then every newer
// one.
//
// Thread-safety: Publish() is for any thread.
class ParameterPublisher {
 public:
  // Binds `endpoint`; "tcp://127.0.0.1:*" takes a free port. Subscribers use
  // the same `key`. Throws what ZmqSocket::Bind() throws.
  explicit ParameterPublisher(const std::string& endpoint,
                              const rpc::GroupKey& key = {});
  ParameterPublisher(const ParameterPublisher&) = delete;
  ParameterPublisher& operator=(const ParameterPublisher&) = delete;

  // The endpoint for subscribers.
  const std::string& endpoint() const { return endpoint_; }

  // Replaces the value of `topic`. Never waits: a newer value replaces an
  // unsent one. Throws InvalidArgument for more bytes than a subscriber takes,
  // 256 MiB.
  void Publish(const std::string& topic, uint64_t version,
               const std::string& bytes) EXCLUDES(mutex_);

 private:
  struct Value {
    uint64_t version = 0;
    rpc::Message payload;
  };

  void Run(const Thread::StopToken& stop) EXCLUDES(mutex_);

  rpc::ZmqContext context_;
  const std::unique_ptr<rpc::ZapHandler> guard_;
  rpc::Publisher publisher_;
  std::string endpoint_;
  Mutex mutex_;
  std::map<std::string, Value> waiting_ GUARDED_BY(mutex_);  // by topic
  std::optional<Thread> thread_;  // last: it uses all of the above
};

}  // namespace replicant::learner
