#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/rpc/client.h"
#include "base/rpc/group_key.h"
#include "base/tensor/tensor_view.h"
#include "replicator/parameter_server/parameter_protocol.h"

namespace replicant::replicator {

// The process was asked to stop, and a server is away.
class ServerAway : public CommError {
 public:
  using CommError::CommError;
};

// A worker's connection to one server, which may move to another address.
//
// Thread-safety: one thread.
class ServerLink {
 public:
  struct Answer {
    ServerReply::Status status = ServerReply::Status::kOk;
    int64_t version = 0;
    rpc::Message tensors;
  };
  struct Options {
    int server = 0;
    // The server's present address; empty while it is away.
    std::function<std::string()> find;
    // Whether the process was asked to stop.
    std::function<bool()> should_stop;
    uint32_t worker = 0;
    // DescribeSplit() of the worker's steps.
    std::string description;
    // Time after which a server that does not answer, but is not away, is an
    // error.
    Clock::Duration timeout{0};
  };

  ServerLink(rpc::ZmqContext& context, Options options,
             const rpc::GroupKey& key);

  // First worker only: returns the values of `held` for a server that has lost
  // them.
  std::function<std::vector<TensorView>()> values_to_assign;
  // First worker only: called twice a second in a wait for this server.
  std::function<void()> on_long_wait;

  // The variables of the server, and those that a pull for each step needs.
  std::vector<std::string> held;
  std::vector<std::vector<std::string>> pulled;
  // The values that a push of each step carries.
  std::vector<std::vector<size_t>> pushed;
  std::vector<std::vector<std::string>> pushed_variables;

  // Sends a request; Finish() waits for the answer. `what` names the request in
  // errors.
  void Start(ServerMessage kind, uint64_t sequence, uint32_t step,
             const std::vector<TensorView>& tensors, std::string what);
  // Joins first if the server asks for it. Throws CommError, naming the server,
  // if it does not answer or refuses, as ServerAway if should_stop() and it has
  // not been connected for 2 s.
  Answer Finish();

  // Tells the server that the training is over, if it is not away.
  void End();
  // Identifies this run of the worker; a worker that restarts draws a new name.
  // Returns the server's version.
  int64_t Join();
  // Joins again if the server was restarted since. Does not wait for a server
  // that is away.
  void CheckServer();

 private:
  std::string Name() const;
  // Connects to the server's present address.
  void Follow();
  void JoinAgain();
  // Sends a request while another one may be under way, and waits for its
  // answer.
  Answer AskBetween(ServerMessage kind, rpc::Message payload,
                    const std::string& what);
  void Send();
  Answer Await();
  // Waits until the request is done. Throws ServerAway.
  rpc::CallReply AwaitReply();

  const Options options_;
  const uint64_t run_;
  rpc::Client client_;
  std::string endpoint_;  // the last one; empty: none was known yet
  bool is_away_ = false;
  // the request under way
  ServerMessage kind_ = ServerMessage::kJoin;
  std::string what_;
  rpc::Message payload_;
  std::optional<rpc::Client::RequestId> request_;
  uint64_t joined_session_ = 0;
};

}  // namespace replicant::replicator
