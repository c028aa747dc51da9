#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/tensor/host_buffer.h"
#include "replicator/comm/communicator.h"
#include "replicator/comm/group_chain.h"
#include "replicator/comm/process_exchange.h"
#include "replicator/comm/process_layout.h"
#include "replicator/comm/thread_group.h"

namespace replicant::comm {

// The calls of a communicator, made of messages between processes that have one
// or more ranks each. P is the number of processes, H of hosts, G of groups
// (process_layout.h), n the bytes of a tensor.
//
// | call           | small     | else
// | barrier        | recursive |
// | all-reduce     | recursive | chain of groups
// | all-gather     | recursive | ring
// | broadcast      | tree      | chain
// | reduce-scatter | recursive | direct in one group, else row of an all-reduce
//
// - recursive: an all-gather by Bruck's algorithm on every host, then between
//   the first processes of the hosts, which pass on what they have: about
//   log2 P rounds, of which log2 H between hosts. Every process reduces all
//   inputs itself.
// - chain of groups: a process reduces its part of the elements for its group,
//   on top of the sum that comes from the group before it; sums go from the
//   last group back down to the first, piece by piece and both ways at once,
//   and around every group. n bytes go from host to host and n back, whatever
//   the number of processes of a host. One group alone is the direct way, with
//   two rounds; groups of one process are a chain of processes. A ring would
//   add each part in another order.
// - tree, ring, chain: in the order of ProcessLayout::chain, host by host.
//
// A process sends O(log P) messages, or O(1) for each piece.
//
// All algorithms add in rank order. A split whose ranks are not numbered by
// process cannot pass on sums, and is one group.
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

  // Makes `c`, the call of this process's first rank, for all of its ranks;
  // `threads` holds their arguments. The result is in the first rank's `out`,
  // or, of a reduce-scatter, in every rank's.
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

  // Recursive: copies the inputs of all ranks to scratch_ and returns a pointer
  // to each rank's.
  std::span<const std::byte* const> GatherAll(size_t size_bytes);
  // Gathers the members' blocks into `blocks`, in order, from this process's
  // own on, which is there already. `sizes`: by member.
  void GatherBlocks(std::span<const int> members, std::span<const size_t> sizes,
                    std::byte* blocks);

  void AllReduceInGroups(const Collective& c, std::span<std::byte> out);
  void ReduceScatterOfGathered(const Collective& c);
  void ReduceScatterDirectly(const Collective& c);
  void ReduceRows(const Collective& c, size_t i, size_t begin, size_t n);
  void ReduceScatterOfAll(const Collective& c);
  void AllGather(const Collective& c);
  void AllGatherInRing(const Collective& c);
  void Broadcast(const Collective& c);
  void BroadcastByTree(int root, std::span<std::byte> bytes);
  // Among `members`, from the one at index `root` on.
  void BroadcastByTree(std::span<const int> members, size_t root,
                       std::span<std::byte> bytes);
  void BroadcastInChain(int root, std::span<std::byte> bytes);

  // Calls visit(process) for all other processes.
  template <typename Visit>
  void ForOthers(const Visit& visit) const {
    for (int p = 0; p < exchange_.num_processes(); ++p) {
      if (p != exchange_.process()) visit(p);
    }
  }
  // Returns at least `size_bytes` of memory, kept between calls.
  static std::byte* Reserve(HostBuffer* buffer, size_t size_bytes);

  ProcessExchange& exchange_;
  const std::vector<int> process_of_;
  std::vector<std::vector<int>> ranks_of_;  // by process
  std::vector<int> ranks_;                  // by thread
  std::vector<int> thread_of_;              // by rank
  const ProcessLayout layout_;
  // index in layout_.chain
  size_t place_ = 0;
  bool is_one_group_ = true;
  std::optional<GroupChain> groups_;
  // of the call under way
  const ThreadGroup* threads_ = nullptr;
  // kept so that calls allocate nothing
  std::vector<const std::byte*> inputs_;
  HostBuffer scratch_{0};
  HostBuffer reduced_{0};
};

}  // namespace replicant::comm
