#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"

// Transfers of tensors between the logical devices of a replica: a Send in the
// plan of one device, a Receive in the plan of the other. Each takes the token
// of the previous transfer of its plan and gives a new one, so that all plans
// make the transfers in one order and no cycle of waits can arise.
namespace replicant::replicator {

// x, token -> token.
graph::Output AddSend(graph::Output x, graph::Output token, int64_t channel,
                      graph::CallSite site);
// token -> what was sent, of this type; token.
graph::Output AddReceive(const graph::TensorType& type, graph::Output token,
                         int64_t channel, graph::CallSite site);

// The tensors in transfer between the plans of one replica. A channel holds one
// tensor, which is sent once and received once in every step.
//
// Thread-safety: any thread; a channel has one sender and one receiver.
class Channels {
 public:
  // A receiver waits at most `timeout` for its tensor.
  Channels(int64_t count, std::chrono::milliseconds timeout)
      : timeout_(timeout), channels_(static_cast<size_t>(count)) {}

  void Put(int64_t channel, const std::byte* data, size_t size_bytes)
      EXCLUDES(mutex_);
  // Throws CommError after Abort() and at the timeout.
  void Take(int64_t channel, std::byte* data, size_t size_bytes)
      EXCLUDES(mutex_);
  // Fails every wait, now and later.
  void Abort(const std::string& reason) EXCLUDES(mutex_);

  // Returns null for a node that is not a transfer. The channels outlive the
  // kernel. `is_host_memory` is the backend's.
  std::unique_ptr<kernels::Kernel> MakeKernel(const graph::Graph& graph,
                                              const graph::Node& node,
                                              bool is_host_memory);

 private:
  struct Channel {
    std::vector<std::byte> data;
    bool is_full = false;
  };

  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  CondVar changed_;
  // mutex_ guards is_full; the sender owns data while it is false, and the
  // receiver owns data while it is true
  std::vector<Channel> channels_;
  bool is_aborted_ GUARDED_BY(mutex_) = false;
  std::string reason_ GUARDED_BY(mutex_);
};

}  // namespace replicant::replicator
