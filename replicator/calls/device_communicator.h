#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/device_collectives.h"
#include "replicator/comm/communicator.h"

namespace replicant::replicator {

// Makes one replica's calls to the others, with operands in its device's
// memory. The calls run on a separate stream, so that the plan goes on:
//
//   comm.Launch(call, stream, done)   behind what `stream` holds so far
//   ...
//   stream.Wait(done)                 before the result is used
//
// The host does not wait for the device. All replicas make the same calls in
// the same order.
//
// Errors: a missing replica, Abort() or a failed device raises a CommError that
// names the rank, on all replicas. A device would wait forever for a lost
// replica: DeviceTeam aborts it.
//
// Thread-safety: Launch() from one thread at a time; Abort(), Poll() and
// failure() from any.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // "nccl, rank 1 of 4 (cuda:1)".
  virtual const std::string& name() const = 0;
  // Reason why it cannot reduce elements of this type; empty if it can.
  virtual std::string WhyNot(DType dtype) const = 0;
  // Waits until all replicas have joined. Throws CommError.
  virtual void AwaitOthers() = 0;

  // Whether a Launch() may be recorded (kernels::Backend::Record()), with the
  // wait for `done`. All replicas record the same calls, and launch recordings
  // in the same order. Recordings are destroyed before the communicator.
  virtual bool can_record() const = 0;
  // Queues a call after the work already on `stream` and records `done` after
  // it. Not a barrier; factor is 1. Operands are device memory.
  virtual void Launch(const comm::Collective& call, kernels::Stream& stream,
                      kernels::Event& done) = 0;

  // No call follows. Called on all of a process's before any is destroyed.
  virtual void Leave() = 0;
  // Fails all calls, now and later.
  virtual void Abort(const std::string& reason) = 0;
  // The reason of the first Abort(); empty without one.
  virtual std::string failure() const = 0;
  // The error that the device has reported so far; empty if none.
  virtual std::string Poll() = 0;
  // The last call that was launched or recorded, for messages.
  virtual std::string last_call() const = 0;
};

// Returns the communicators of this process's replicas that share one device,
// by rank. Host threads meet in each call so that a replica's stream can wait
// for the others' streams. Each replica reduces one part for all; sums are in
// rank order and match comm::Communicator bit for bit. Throws InvalidArgument
// for more than DeviceCollectives::kMaxSharers.
std::vector<std::unique_ptr<DeviceCommunicator>> MakeSharedDeviceCommunicators(
    const std::vector<kernels::Backend*>& backends,
    const comm::CommunicatorOptions& options);

// Returns the communicator of one replica among several with a device each,
// made by the library of `backend`. All ranks make one for the same `group`
// (DeviceCollectives::NewGroup()), and then AwaitOthers(). A wait ends when
// `host`, the replica's other communicator, which outlives this, has failed.
// Throws DeviceError.
std::unique_ptr<DeviceCommunicator> MakeLibraryCommunicator(
    kernels::Backend& backend, const std::string& group,
    const comm::Communicator* host, const comm::CommunicatorOptions& options);

}  // namespace replicant::replicator
