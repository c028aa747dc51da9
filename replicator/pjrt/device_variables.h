#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"
#include "engine/pjrt/client.h"
#include "engine/runtime/variable_store.h"

namespace replicant::replicator {

// The variables of all steps in the memory of the replicas' devices, with the
// host's copy of the first replica's. The last writer of a variable, a step or
// the host, holds its value; the other side gets it on demand.
//
// Replica r is on device r of the client, which outlives this.
//
// Thread-safety: one thread at a time.
class DeviceVariables {
 public:
  // `host` holds the copy; first values are as in runtime::VariableStore.
  DeviceVariables(const pjrt::Client& client, int num_replicas,
                  kernels::Backend& host, uint64_t seed)
      : client_(client),
        num_replicas_(static_cast<size_t>(num_replicas)),
        store_(host, seed) {}

  size_t num_replicas() const { return num_replicas_; }

  // Adds the variables of a step. Throws what runtime::VariableStore does.
  void Declare(const std::vector<graph::VariableSpec>& variables);

  // The host's copy, brought up to date with what steps have written. Upload()
  // sends the host's writes to the devices. Throws DeviceError.
  runtime::VariableStore& Fetch();
  // The same for one variable. Throws InvalidArgument for an unknown name.
  TensorView Fetch(const std::string& name);

  // Sends a variable's value to the devices if the host holds it. Every replica
  // gets the same value. Throws DeviceError.
  void Upload(const std::string& name);
  // After Upload().
  const pjrt::Buffer& at(const std::string& name, size_t replica) const {
    return variables_.at(name).buffers[replica];
  }

  // Takes a variable that a step wrote: one buffer per replica.
  void Replace(const std::string& name, std::vector<pjrt::Buffer> buffers);

  // Stores the events of the last step of any kind: the devices have read its
  // arguments; they are done.
  void SetRunning(std::vector<pjrt::Event> reads,
                  std::vector<pjrt::Event> done) {
    reads_ = std::move(reads);
    done_ = std::move(done);
  }
  // Wait for these events; throw DeviceError if the step has failed.
  void AwaitReads() { Await(&reads_); }
  void AwaitStep() {
    AwaitReads();
    Await(&done_);
  }

  // Counts the changes of a variable that has been uploaded.
  uint64_t num_writes(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? 0 : found->second.num_writes;
  }

 private:
  struct Variable {
    // by replica
    std::vector<pjrt::Buffer> buffers;
    // Whether a step has written it since the host's copy was made.
    bool is_newer = false;
    // Version of the host's copy when it last equalled the devices'.
    uint64_t host_version = 0;
    uint64_t num_writes = 0;
  };

  static void Await(std::vector<pjrt::Event>* events);
  // Begins the copy to the host.
  pjrt::Event BeginFetch(const std::string& name, Variable* variable);

  const pjrt::Client& client_;
  const size_t num_replicas_;
  runtime::VariableStore store_;
  // variables that have been on the devices
  std::map<std::string, Variable> variables_;
  // of the last step
  std::vector<pjrt::Event> reads_, done_;
};

}  // namespace replicant::replicator
