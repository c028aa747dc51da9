#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/process_exchange.h"
#include "core/comm/thread_group.h"
#include "core/tensor/host_buffer.h"

namespace replicant::comm {

// The calls of a communicator, made of messages between processes that have one
// or more ranks each. P is the number of processes, n the bytes of a tensor.
//
// | call           | small           | few processes   | else
// | barrier        | dissemination   |                 |
// | all-reduce     | recursive       | direct          | chain
// | all-gather     | recursive       | ring            | ring
// | broadcast      | binomial tree   | chain           | chain
// | reduce-scatter | recursive       | direct          | row of an all-reduce
//
// - recursive: an all-gather by Bruck's algorithm, ceil(log2 P) rounds; every
//   process reduces all inputs itself.
// - direct: every process sends each other one its part of every rank's
//   elements, reduces what arrives and sends the result back. Two rounds and
//   2 n (P - 1) / P bytes, to everyone.
// - chain: partial sums go from process 0 up to the last, sums go back down,
//   piece by piece and both ways at once. 2 n bytes to the two neighbours, as
//   of a ring, in P + n / piece rounds. A ring would add each part in another
//   order.
//
// Every way adds in rank order. Ranks of a split that lie mixed in the
// processes cannot pass on partial sums, and bf16, which is rounded once, does
// not: both go the direct way.
//
// Thread-safety: one thread at a time.
class ProcessCollectives {
 public:
  // `process_of`: by rank. The exchange must outlive this.
  ProcessCollectives(ProcessExchange* exchange, std::vector<int> process_of);

  int num_ranks() const { return static_cast<int>(process_of_.size()); }
  // The process of each rank, the ranks of this process by thread, and the
  // thread of each rank (-1 for a rank of another process).
  const std::vector<int>& process_of() const { return process_of_; }
  const std::vector<int>& ranks() const { return ranks_; }
  int thread_of(int rank) const {
    return thread_of_[static_cast<size_t>(rank)];
  }

  // Makes `c`, the call of the first rank of this process, for all of them,
  // whose arguments are in `threads`. The result is in the first one's `out`; a
  // reduce-scatter's in everyone's.
  void Make(const Collective& c, const ThreadGroup& threads);

 private:
  std::span<const std::byte> InputOf(size_t thread) const {
    return threads_->call_of(thread).in.bytes();
  }
  size_t num_threads() const { return ranks_.size(); }
  // Number of ranks of a process.
  size_t CountOf(int process) const {
    return ranks_of_[static_cast<size_t>(process)].size();
  }
  bool IsSmall(size_t bytes_of_all) const;
  bool IsDirect(const Collective& c) const;

  // Recursive: copies the inputs of all ranks to scratch_, and points at the
  // one of each rank.
  std::span<const std::byte* const> GatherAll(size_t size_bytes);
  void AllReduceDirectly(const Collective& c);
  void AllReduceInChain(const Collective& c, std::span<std::byte> out);
  void ReduceScatterOfGathered(const Collective& c);
  void ReduceScatterDirectly(const Collective& c);
  void ReduceScatterOfAll(const Collective& c);
  template <typename InOf>
  void GatherAndReduce(const Collective& c, const InOf& in_of,
                       std::span<std::byte> out);
  void AllGather(const Collective& c);
  void AllGatherInRing(const Collective& c);
  void Broadcast(const Collective& c);
  void BroadcastByTree(int root, std::span<std::byte> bytes);
  void BroadcastInChain(int root, std::span<std::byte> bytes);

  // Calls visit(process) for all other processes.
  template <typename Visit>
  void ForOthers(const Visit& visit) const {
    for (int p = 0; p < exchange_.num_processes(); ++p) {
      if (p != exchange_.process()) visit(p);
    }
  }
  // At least so much memory, kept between calls.
  static std::byte* Reserve(HostBuffer* buffer, size_t size_bytes);

  ProcessExchange& exchange_;
  const std::vector<int> process_of_;
  std::vector<std::vector<int>> ranks_of_;  // by process
  std::vector<int> ranks_;                  // by thread
  std::vector<int> thread_of_;              // by rank
  // Ranks are numbered by process.
  bool is_ordered_ = true;
  // of the call under way
  const ThreadGroup* threads_ = nullptr;
  // kept so that calls allocate nothing
  std::vector<const std::byte*> inputs_;
  HostBuffer scratch_{0};
  HostBuffer reduced_{0};
};

}  // namespace replicant::comm
