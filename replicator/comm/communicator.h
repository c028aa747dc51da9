#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "replicator/comm/reduce.h"

namespace replicant::comm {

// One call of one rank, which all ranks of a group make together. `size` ranks
// take part, and n is a number of elements. `in` and `out` have one dtype.
struct Collective {
  enum class Kind {
    kAllReduce,      // out[n] = op over all ranks of in[n]
    kAllGather,      // out[size * n] = in[n] of every rank, in rank order
    kReduceScatter,  // out[n] = rows rank*n.. of the reduced in[size * n]
    kBroadcast,      // out[n] = in[n] of rank `source`
    kBarrier,        // no data: waits until all ranks are there
  };

  // "all_reduce sum f32[3,4] (step.cc:41)".
  std::string ToString() const;

  Kind kind = Kind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int source = 0;
  TensorView in{DType::kU8, Shape({0}), nullptr};
  MutableTensorView out{DType::kU8, Shape({0}), nullptr};
  // Factor on the result of a reduction; 1 unless elements are floating.
  double factor = 1.0;
  // The caller's place for messages ("step.cc:41"); must outlive the call.
  std::string_view place = {};
};

// A group of ranks that compute together: threads of this process
// (thread_communicator.h) or processes (mpi_communicator.h,
// tcp_communicator.h). Each rank has its own object, and all ranks make the
// same calls in the same order.
//
// Reductions go in rank order, ((x_0 + x_1) + x_2) + ..., whatever the
// transport, so that all transports give the same bits at equal size.
//
// `in` and `out` of a call may be the same memory, rank by rank: for an
// all-gather `in` is then row `rank` of `out`, for a reduce-scatter `out` row
// `rank` of `in`. They may not overlap in another way (checked).
//
// Errors: every call has a deadline, CommunicatorOptions::timeout. A missing
// rank, an Abort() and a failed transport end the call on every rank with a
// CommError that names the call, the waiting ranks and the missing ranks. The
// group cannot be used afterwards: every later call throws the same. Memory of
// a call that failed must outlive the communicators of all ranks in this
// process. Arguments that do not fit throw InvalidArgument before anything
// happens.
//
// Thread-safety: one thread at a time; Abort() from any.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "threads", "mpi", "tcp".
  virtual std::string_view transport() const = 0;

  // Makes one call. Returns when `out` is complete and `in` may be written
  // again.
  void Run(const Collective& collective);

  void AllReduce(TensorView in, MutableTensorView out, ReduceOp op) {
    Run({Collective::Kind::kAllReduce, op, 0, in, out});
  }
  void AllGather(TensorView in, MutableTensorView out) {
    Run({Collective::Kind::kAllGather, {}, 0, in, out});
  }
  void ReduceScatter(TensorView in, MutableTensorView out, ReduceOp op) {
    Run({Collective::Kind::kReduceScatter, op, 0, in, out});
  }
  void Broadcast(MutableTensorView tensor, int source) {
    Run({Collective::Kind::kBroadcast, {}, source, tensor, tensor});
  }
  void Barrier() { Run({}); }

  // Makes a group of the ranks that gave the same `color` >= 0, ordered by
  // `key` and then by rank. Returns null for a negative color. All ranks call
  // it.
  virtual std::unique_ptr<Communicator> Split(int color, int key) = 0;

  // Ends the current call of every rank, and all later ones, with a CommError.
  // Processes without heartbeats (heartbeat_timeout) notice at their deadline,
  // unless this process exits, which ends them all.
  virtual void Abort(const std::string& reason) = 0;
  // Why the group has failed, as far as this rank knows without a call: an
  // Abort() or a verdict of the heartbeats. Empty while the group works. May be
  // called from any thread.
  [[nodiscard]] virtual std::string Failure() const { return {}; }

 protected:
  // The ranks of every part of a Split(), by color and in their order within
  // the part. All ranks call it.
  std::map<int, std::vector<int>> GatherParts(int color, int key);

 private:
  // The arguments have been checked.
  virtual void DoRun(const Collective& collective) = 0;
};

// One process's part of a group of processes with one or more ranks each.
struct LocalRanks {
  // A communicator with one rank per process. Must not be called while a call
  // of `ranks` is under way.
  std::unique_ptr<Communicator> processes;
  // This process's ranks, one for each thread. Ranks are numbered by process.
  std::vector<std::unique_ptr<Communicator>> ranks;
};

struct CommunicatorOptions {
  // Maximum time that a rank waits in one call for the others.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Between processes (replicator/comm/liveness.h): the time between two
  // heartbeats of a rank, and the silence after which all others end. A timeout
  // of 0 turns heartbeats off.
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds heartbeat_timeout{10'000};
  // Between processes: the name of this one's host. Processes with equal names
  // share a host, and as few messages as possible go from host to host. Empty:
  // the network namespace.
  std::string host = {};
};

}  // namespace replicant::comm
