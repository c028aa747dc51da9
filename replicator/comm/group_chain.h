#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/tensor/host_buffer.h"
#include "replicator/comm/communicator.h"
#include "replicator/comm/process_exchange.h"

namespace replicant::comm {

// All-reduces along a chain of groups of processes, in rank order.
//
// The elements are divided into parts, one for each process of the smallest
// group; in every group a process owns a part. Piece by piece, the others of
// the group send it their inputs, and it adds them to the sum that came from
// the owner in the group before. Complete sums go back down the chain, and from
// every owner to its group. Per group n bytes arrive from each neighbour and n
// leave.
//
// Piece i is added in group g in step i + g. With `last` the last group, its
// sum comes back to group g in step i + 2 last - g, and goes round the group
// one step later.
//
// bf16 is passed on as f32 until it is rounded, once, in the last group.
//
// Thread-safety: one thread at a time.
class GroupChain {
 public:
  // `groups`: processes in the order of their ranks; several groups only if
  // ranks are numbered by process. `ranks_of`: by process. The exchange must
  // outlive this.
  GroupChain(ProcessExchange* exchange,
             const std::vector<std::vector<int>>& groups,
             const std::vector<std::vector<int>>& ranks_of);

  // `inputs`: of this process's ranks. `out` may be the first one's memory.
  void AllReduce(const Collective& c, std::span<const std::byte* const> inputs,
                 std::span<std::byte> out);

 private:
  // One input of the group's sums.
  struct Term {
    int process = 0;
    size_t thread = 0;  // number in this process, if it has the rank
  };
  // State that all pieces of a call share.
  struct Call {
    const Collective& c;
    std::span<const std::byte* const> inputs;
    std::span<std::byte> out;
    size_t count = 0;
    size_t element = 0;  // bytes
    // Elements of a piece.
    size_t piece = 0;
    size_t num_pieces = 0;
    // Sums on their way up are f32.
    bool is_wide = false;
    // Buffers for arriving inputs and the previous group's sum.
    std::byte* terms = nullptr;
    std::byte* carry = nullptr;
    // A wide sum.
    float* partial = nullptr;
  };

  bool owns_part() const { return place_ < num_parts_; }
  bool is_last() const { return number_ == last_; }
  size_t PieceBytes(size_t part_bytes) const;
  Range PieceOf(const Call& call, size_t part, size_t i) const;
  std::span<std::byte> Result(const Call& call, size_t part, size_t i) const;
  Call Begin(const Collective& c, std::span<const std::byte* const> inputs,
             std::span<std::byte> out);
  // These add messages to the next Exchange().
  void CollectTerms(const Call& call, size_t i);
  void PassOn(const Call& call, size_t step);
  void HandRound(const Call& call, size_t i);
  // Adds the inputs of a piece to the sum.
  void Add(const Call& call, size_t i);

  ProcessExchange& exchange_;
  std::vector<int> group_;  // processes of this one's group
  size_t number_ = 0;       // of the group
  size_t last_ = 0;
  size_t num_parts_ = 0;
  size_t place_ = 0;  // in the group; the part that this process owns
  // owners of the same part in the previous and the next group
  int below_ = -1;
  int above_ = -1;
  std::vector<Term> terms_;  // in rank order
  // kept so that calls allocate nothing
  std::vector<const std::byte*> added_;
  HostBuffer scratch_{0};
};

}  // namespace replicant::comm
