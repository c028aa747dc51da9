#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/rpc/group_key.h"
#include "base/rpc/socket.h"
#include "base/rpc/subscriber.h"

namespace replicant::actors {

// Receives the policy that a learner publishes (engine/runtime/parameters.h).
//
// Thread-safety: one thread makes all calls.
class ParameterClient {
 public:
  // Connects in the background, and again whenever the learner returns. The
  // learner holds the same `key`. Throws what ZmqSocket::Connect() throws.
  explicit ParameterClient(const std::string& endpoint,
                           const rpc::GroupKey& key = {});

  struct Parameters {
    uint64_t version = 0;     // the learner's step
    int64_t agent_steps = 0;  // of all actors, as last counted by the learner
    std::span<const std::byte> bytes;  // valid until the next call
  };
  // Returns the newest value unless it was returned before. Waits for a new one
  // until `timeout`. Throws CommError if the learner refuses the key.
  std::optional<Parameters> Poll(Clock::Duration timeout);
  // Takes what has come, for the next Poll(), and waits for a new value until
  // `timeout`. For a caller that does not poll for longer than a few values
  // take: those behind them are dropped on the way. Throws as Poll().
  void Receive(Clock::Duration timeout);

 private:
  rpc::ZmqContext context_;
  rpc::Subscriber subscriber_;
  bool has_new_ = false;  // a value that Poll() has not returned
};

}  // namespace replicant::actors
