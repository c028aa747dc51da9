#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/tensor/dtype.h"
#include "engine/kernels/backend.h"

// Support for replicas by a backend with device memory: calls between devices
// by a vendor's library, and the arithmetic of replicas that share one device.
// replicator builds collectives from it.
namespace replicant::kernels {

enum class DeviceReduceOp { kSum, kMin, kMax, kProd };

// One call of one rank on memory of its device, which all ranks make together.
// The meaning is as in comm::Collective: `in` may be `out`, or, for gathers and
// scatters, the rank's row of the larger one.
struct DeviceCall {
  enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

  Kind kind = Kind::kAllReduce;
  DeviceReduceOp op = DeviceReduceOp::kSum;
  int source = 0;
  DType dtype = DType::kF32;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  int64_t count = 0;  // elements of `in`
};

// One rank of a group of devices that a library connects (NCCL). No method
// waits for another rank, or for the device.
//
//   joined: Poll() until kReady
//   Launch(call, stream), Poll() until kReady, ...
//
// Thread-safety: Launch() from one thread at a time; Poll() and Abort() from
// any.
class DeviceRank {
 public:
  enum class State { kReady, kInProgress, kFailed };
  struct Status {
    State state = State::kReady;
    std::string problem = {};  // with kFailed
  };

  virtual ~DeviceRank() = default;

  // Queues the call on the stream. Once Poll() returns kReady the call is in
  // the stream, and an event may be recorded after it. Ranks make equal calls
  // in one order. Throws DeviceError; does nothing after Abort().
  virtual void Launch(const DeviceCall& call, Stream& stream) = 0;
  // State of the last Launch(), or of joining the group.
  [[nodiscard]] virtual Status Poll() = 0;
  // Declares that this rank makes no more calls. All ranks of one process do so
  // before any of them is destroyed; destruction waits for the others.
  virtual void Leave() = 0;
  // Ends calls that are queued or running on this rank's device, soon; their
  // results are undefined. The rank cannot be used afterwards, and is destroyed
  // after the graphs that have its calls.
  virtual void Abort() = 0;
};

// A tensor of a bucket: `count` elements.
struct BucketPart {
  std::byte* data = nullptr;
  int64_t count = 0;
};

// The collectives of one backend, which outlives this object.
//
// Thread-safety: as the backend.
class DeviceCollectives {
 public:
  // Maximum number of replicas that share one device.
  static constexpr int kMaxSharers = 64;

  virtual ~DeviceCollectives() = default;

  // Names the device among all devices of all hosts.
  virtual std::string device_id() = 0;

  // --- separate devices ---

  // "NCCL 2.28.9". Throws DeviceError if the library is missing.
  virtual std::string library() = 0;
  // The text by which the ranks of a new group find each other; one of them
  // makes it. Throws DeviceError.
  virtual std::string NewGroup() = 0;
  // Starts to join a group, whose ranks have one device each. Throws
  // DeviceError.
  virtual std::unique_ptr<DeviceRank> Join(const std::string& group, int rank,
                                           int size) = 0;

  // --- one device that replicas of this process share ---

  // Whether elements of this type can be reduced, shared device or not.
  [[nodiscard]] virtual bool CanReduce(DType dtype) const = 0;
  // Queues out[i] = ((in_0[i] op in_1[i]) op in_2[i]) ... for i in [begin, end)
  // into every output, which may be an input: the bits of comm::Reduce(). At
  // most kMaxSharers inputs and outputs. Throws DeviceError.
  virtual void Reduce(DeviceReduceOp op, DType dtype,
                      std::span<const std::byte* const> inputs,
                      std::span<std::byte* const> outputs, int64_t begin,
                      int64_t end, Stream& stream) = 0;

  // --- buckets ---

  // Queues a copy of all parts, one after the other, into `to`, which holds
  // `wire`: `from` itself, or bf16 of f32.
  virtual void Pack(std::span<const BucketPart> parts, DType from,
                    std::byte* to, DType wire, Stream& stream) = 0;
  // The inverse, times `factor`, which is 1 unless elements are floating. A
  // single part may be `from` itself.
  virtual void Unpack(const std::byte* from, DType wire, double factor,
                      std::span<const BucketPart> parts, DType to,
                      Stream& stream) = 0;
};

}  // namespace replicant::kernels
