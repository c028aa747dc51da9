#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/batched_policy.h"
#include "actors/inference_protocol.h"
#include "base/clock.h"
#include "base/rpc/server.h"

namespace replicant::actors {

// Parameters that a learner has published.
struct PublishedParameters {
  uint64_t version = 0;
  int64_t agent_steps = 0;
  std::span<const std::byte> bytes;  // valid until the next call
};

struct InferenceServerOptions {
  // Maximum time that a request waits for requests of other actors.
  Clock::Duration max_wait = std::chrono::milliseconds(2);
  // Called before each batch and every max_wait; returns newer parameters, or
  // std::nullopt.
  std::function<std::optional<PublishedParameters>()> poll_parameters;
  Clock* clock = &Clock::Real();
};

// Counts since the server was made.
struct InferenceMetrics {
  int64_t requests = 0;
  int64_t rows = 0;
  int64_t batches = 0;
};

// Computes the policy for all actors of a host: receives observations and
// answers with actions.
//
// Requests wait until every actor that has sent one within the last second
// waits for an answer, or the oldest has waited for max_wait. They are then
// computed as one batch with the newest parameters, which the server fetches
// once for all of its actors. Until the first parameters arrive, requests wait.
// If a server ends without an answer, the actor sends its request again; acting
// twice on one observation is harmless.
//
// Thread-safety: only the thread of the rpc server's loop, for metrics() as
// well.
class InferenceServer {
 public:
  // `policy` outlives this.
  InferenceServer(BatchedPolicy* policy, InferenceServerOptions options);

  // Before server.Run(), which must not outlive this. The server's
  // tick_interval should be max_wait.
  void AttachTo(rpc::Server& server);

  std::optional<uint64_t> version() const { return version_; }
  const InferenceMetrics& metrics() const { return metrics_; }

 private:
  struct Waiting {
    rpc::Responder responder;
    rpc::Message payload;  // that `request` borrows from
    ActRequest request;
    ActReply reply;
    Clock::TimePoint since;
  };

  void HandleAct(rpc::Request& request, rpc::Responder responder);
  void PollParameters();
  // Whether every active actor waits for an answer.
  bool IsEverybodyHere() const;
  void RunBatch();
  void Tick();

  BatchedPolicy& policy_;
  const InferenceServerOptions options_;
  std::optional<uint64_t> version_;
  int64_t agent_steps_ = 0;
  std::vector<Waiting> waiting_;
  // time of each actor's last request
  std::map<uint64_t, Clock::TimePoint> asked_at_;
  InferenceMetrics metrics_;
};

}  // namespace replicant::actors
