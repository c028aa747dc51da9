#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/graph/graph.h"
#include "core/kernels/backend.h"

// How tensors get from one logical device of a replica to another: a Send in
// the plan of the one, a Receive in that of the other. Both take the token of
// the transfer before it in their plan and give one, so that all plans have the
// transfers in one order, in which none waits for another in a circle.
namespace replicant::replicator {

// x, token -> token.
graph::Output AddSend(graph::Output x, graph::Output token, int64_t channel,
                      graph::CallSite site);
// token -> what was sent, of this type; token.
graph::Output AddReceive(const graph::TensorType& type, graph::Output token,
                         int64_t channel, graph::CallSite site);

// What is under way between the plans of one replica. A channel holds one
// tensor: it is sent once and received once in every step.
//
// Thread-safety: yes; a channel has one sender and one receiver.
class Channels {
 public:
  // A receiver waits so long for a tensor that does not come.
  Channels(int64_t count, std::chrono::milliseconds timeout)
      : timeout_(timeout), channels_(static_cast<size_t>(count)) {}

  void Put(int64_t channel, const std::byte* data, size_t size_bytes)
      EXCLUDES(mutex_);
  // Throws CommError after Abort(), and when the time is over.
  void Take(int64_t channel, std::byte* data, size_t size_bytes)
      EXCLUDES(mutex_);
  // Ends all waiting, now and later.
  void Abort(const std::string& reason) EXCLUDES(mutex_);

  // Null for a node that is no transfer. The channels outlive the kernel.
  // `is_host_memory` is the backend's.
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
  // whether one is full is guarded; its data are the sender's while it is
  // empty, and the receiver's while it is full
  std::vector<Channel> channels_;
  bool is_aborted_ GUARDED_BY(mutex_) = false;
  std::string reason_ GUARDED_BY(mutex_);
};

}  // namespace replicant::replicator
