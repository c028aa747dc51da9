#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "replicator/comm/communicator.h"

namespace replicant::replicator {

// Exchanges between the processes of a run, made between steps. A lone process
// gets its own values back.
//
// All processes make the same calls in the same order, and none while a plan
// runs. They throw CommError, as comm::Communicator does.
//
// Thread-safety: one thread at a time.
class Processes {
 public:
  // `between` has a rank for each process; it is null for a lone one, and
  // outlives this.
  explicit Processes(comm::Communicator* between) : between_(between) {}

  int rank() const;
  int size() const;

  // Replaces each word by its minimum over all processes.
  void Min(std::span<int32_t> words);
  // Copies the first process's tensor to all.
  void Broadcast(MutableTensorView tensor);
  std::string Broadcast(const std::string& text);
  // Returns every process's text, by rank.
  std::vector<std::string> Gather(const std::string& text);

 private:
  void Run(const comm::Collective& collective);

  comm::Communicator* between_;
};

}  // namespace replicant::replicator
