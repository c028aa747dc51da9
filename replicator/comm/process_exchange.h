#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "replicator/comm/communicator.h"
#include "replicator/comm/liveness.h"

namespace replicant::comm {

// Messages between the processes of a group, from which the calls of
// communicators are built (process_ranks.h). A transport moves the bytes:
// MpiExchange or TcpExchange.
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
class ProcessExchange {
 public:
  virtual ~ProcessExchange() = default;
  ProcessExchange(const ProcessExchange&) = delete;
  ProcessExchange& operator=(const ProcessExchange&) = delete;

  // "mpi", "tcp".
  virtual std::string_view transport() const = 0;
  int process() const { return process_; }
  int num_processes() const { return num_processes_; }
  const CommunicatorOptions& options() const { return options_; }
  // The host of each process; equal numbers are one host.
  const std::vector<int>& host_of() const { return host_of_; }

  // An exchange of the processes for which `is_member` holds, in the same
  // order; null for the others. All processes call it.
  virtual std::shared_ptr<ProcessExchange> Split(bool is_member) = 0;

  // Collects one number from every process. All processes call it.
  std::vector<int32_t> GatherNumbers(int32_t own);

  // Runs make() as this process's part of a call.
  template <typename Make>
  void Run(const Collective& call, const Make& make) {
    ThrowIfAborted();
    ++num_calls_;
    // numbered in the same order by all processes
    const Liveness::CallScope scope(is_part_ ? nullptr : liveness_.get(), call);
    call_ = &call;
    try {
      make();
    } catch (const CommError& e) {
      End(e.what(), e.what());
      call_ = &kSetUp;
      throw;
    }
    call_ = &kSetUp;
  }

  // Adds a message to the next Exchange() with another process. Messages to, or
  // from, one process keep their order; both sides give the same size.
  void Send(int peer, std::span<const std::byte> bytes);
  void Receive(int peer, std::span<std::byte> bytes);
  // Sends and receives all added messages.
  void Exchange();

  // Reports to the others, if watched, that this process cannot go on.
  void Abort(const std::string& reason) EXCLUDES(mutex_);
  void ThrowIfAborted() EXCLUDES(mutex_);
  // Why calls fail from now on; empty while they do not.
  std::string Failure() const EXCLUDES(mutex_);

 protected:
  struct Message {
    int peer = 0;
    bool is_send = false;
    // only read if is_send
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };

  ProcessExchange(int process, int num_processes,
                  const CommunicatorOptions& options)
      : options_(options),
        process_(process),
        num_processes_(num_processes),
        host_of_(static_cast<size_t>(num_processes), 0) {}

  // Learns on which hosts the processes are, and starts the heartbeats between
  // them, if the options have any. `place` says where this process runs. All
  // call it.
  void MeetOthers(const std::string& place);
  // `host_of`: by process.
  void SetHosts(std::vector<int> host_of) { host_of_ = std::move(host_of); }
  // Makes this the exchange of a part of `whole`, whose heartbeats it shares.
  // `members`: the processes of the part, in order.
  void BecomePartOf(const ProcessExchange& whole, std::span<const int> members);
  // Ends the heartbeats; for a destructor.
  void StopWatching() { liveness_.reset(); }

  // Collects equally many bytes from every process. All processes call it.
  std::vector<std::byte> GatherBytes(std::span<const std::byte> own);

  // The processes that are members of a Split(), in order. All processes call
  // it.
  std::vector<int> GatherMembers(bool is_member);

  // The call under way and the number of calls so far.
  const Collective& call() const { return *call_; }
  uint64_t num_calls() const { return num_calls_; }
  // Fails the call at its deadline: "mpi: rank 0 of 3 waited 300 s in call 71,
  // barrier, for rank 1". `missing` may name a process several times.
  [[noreturn]] void ThrowMissing(std::vector<int> missing);
  // Fails the call because of another process. Waits for a verdict of the
  // heartbeats, which names the process that failed first.
  [[noreturn]] void ThrowProblem(const std::string& problem);
  // "rank 1", and where it is if that is known.
  virtual std::string NameOf(int peer) const;

 private:
  // Calls between processes before the first of a communicator.
  static const Collective kSetUp;

  // Moves the messages. Calls ThrowIfAborted() regularly.
  virtual void Move(std::span<const Message> messages) = 0;
  // Called when this and all later calls are to fail.
  virtual void OnEnd() {}

  // Fails this and all later calls with the reason, and reports `to_others`
  // unless it is empty.
  void End(const std::string& reason, const std::string& to_others)
      EXCLUDES(mutex_);

  const CommunicatorOptions options_;
  const int process_;
  const int num_processes_;
  std::vector<int> host_of_;
  // null without heartbeats
  std::shared_ptr<Liveness> liveness_;
  bool is_part_ = false;
  const Collective* call_ = &kSetUp;
  uint64_t num_calls_ = 0;
  // kept so that calls allocate nothing
  std::vector<Message> messages_;

  std::atomic<bool> is_aborted_{false};
  mutable Mutex mutex_;
  std::string reason_ GUARDED_BY(mutex_);
};

}  // namespace replicant::comm
