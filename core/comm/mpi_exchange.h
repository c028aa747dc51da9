#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/comm/communicator.h"
#include "core/comm/liveness.h"

namespace replicant::comm {

// Messages between the processes of a group over MPI, from which the calls of
// communicators are built.
//
//   exchange.Run(call, [&] {
//     exchange.Receive(peer, memory);
//     exchange.Send(peer, other_memory);
//     exchange.Exchange();
//   });
//
// All processes make the same calls in the same order. A deadline
// (CommunicatorOptions::timeout), a verdict of Liveness or an Abort() ends a
// wait with CommError; every later call throws it too.
//
// Thread-safety: one thread at a time; Abort() from any.
class MpiExchange {
 public:
  // An exchange of all processes that one mpirun started. Several processes
  // watch each other. Throws CommError.
  static std::shared_ptr<MpiExchange> OfAllProcesses(
      const CommunicatorOptions& options);

  // Takes ownership of `comm`.
  MpiExchange(MPI_Comm comm, const CommunicatorOptions& options);
  ~MpiExchange();
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  int process() const { return process_; }
  int num_processes() const { return num_processes_; }
  const CommunicatorOptions& options() const { return options_; }

  // An exchange of the processes for which `is_member` holds, in the same
  // order; null for the others. All processes call it.
  std::shared_ptr<MpiExchange> Split(bool is_member);

  // Collects one number from every process. All processes call it.
  std::vector<int32_t> GatherNumbers(int32_t own);

  // Runs make() as this process's part of a call.
  template <typename Make>
  void Run(const Collective& call, const Make& make) {
    ThrowIfAborted();
    call_ = &call;
    ++num_calls_;
    // numbered in the same order by all processes
    const Liveness::CallScope scope(is_part_ ? nullptr : liveness_.get(), call);
    try {
      make();
    } catch (const CommError& e) {
      End(e.what(), e.what());
      throw;
    }
  }

  // Within Run(): adds a message to the next Exchange() with another process.
  // Messages to, or from, one process keep their order.
  void Send(int peer, std::span<const std::byte> bytes);
  void Receive(int peer, std::span<std::byte> bytes);
  // Sends and receives all added messages.
  void Exchange();

  // Reports that this process cannot go on to the others, if they are watched.
  void Abort(const std::string& reason) EXCLUDES(mutex_);
  void ThrowIfAborted() EXCLUDES(mutex_);

 private:
  struct Message {
    int peer = 0;
    bool is_send = false;
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };

  // Starts the heartbeats between all processes.
  void Watch();
  void WaitForAll();
  std::string DescribeMissing();
  // Fails this and all later calls with the reason, and reports `to_others`
  // unless it is empty.
  void End(const std::string& reason, const std::string& to_others)
      EXCLUDES(mutex_);

  MPI_Comm comm_;
  const CommunicatorOptions options_;
  int process_ = 0;
  int num_processes_ = 1;
  // null without heartbeats
  std::shared_ptr<Liveness> liveness_;
  bool is_part_ = false;
  // the call under way, and the number of calls so far
  const Collective* call_ = nullptr;
  uint64_t num_calls_ = 0;
  // kept so that calls allocate nothing
  std::vector<Message> messages_;
  std::vector<MPI_Request> requests_;

  std::atomic<bool> is_aborted_{false};
  Mutex mutex_;
  std::string reason_ GUARDED_BY(mutex_);
};

}  // namespace replicant::comm
