#pragma once

#include <cstdint>
#include <memory>

namespace replicant::replicator {

// A program that was written for one process, with a graph, an optimizer and an
// executor of its own (docs/graph.md), run by several (the user-transparent
// programs of MaTEx, arXiv:1704.04560; the averages are Horovod's,
// arXiv:1802.05799). One line in main(), before the first graph:
//
//   const auto processes = Distribute(/*batch_size=*/256);
//
// A launcher then starts any number of processes. Every process runs the whole
// program and fills whole batches, and learns from its own part of each:
//
// - An input whose leading dimension is `batch_size` (Graph::Input) has the
//   rows of this process in its graph.
// - The gradients of an optimizer of engine/nn are the means over all
// processes.
// - From the first such run on, the variables are the first process's.
// - A variable that is not trained, updated from these rows, is made equal by
//   its ReplicaAgreement.
// - A plan's outputs match those of one process: a floating scalar is the mean
//   over all processes, and rows are gathered.
//
// So losses must be means over rows. Sums over a batch (SyncBatchNorm, a norm
// of all rows) are those of this process's rows, and random ops without
// RandomOptions::first_row give each process the same numbers. Not to be used
// together with a Replicator.
//
// The processes are those that mpirun has started, or, with these environment
// variables, those that meet over TCP (comm::TcpGroup):
//
//   REPLICANT_PROCESS, REPLICANT_NUM_PROCESSES   this process, their number
//   REPLICANT_RENDEZVOUS                         tcp://HOST:PORT, or a file
//   REPLICANT_RENDEZVOUS_KEY                     the secret of an address
//
// Without either the process is alone, and nothing changes.
class Distribution {
 public:
  virtual ~Distribution() = default;

  virtual int process() const = 0;
  virtual int num_processes() const = 0;
  // Whether this process writes what only one should: logs, checkpoints.
  bool leads() const { return process() == 0; }
};

// Applies while the result lives, which must outlive graphs and plans. Throws
// ConfigError for an environment that cannot be read and for a batch that
// cannot be divided evenly, and what comm::MakeTcpRanks() and
// comm::MakeMpiRanks() throw. Compiling a plan throws InvalidArgument for a
// trained variable that would differ between processes, and for an output that
// is neither a floating scalar nor made of rows. A plan's first run throws it
// in all processes if their stores hold different variables.
[[nodiscard]] std::unique_ptr<Distribution> Distribute(int64_t batch_size);

}  // namespace replicant::replicator
