#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "engine/kernels/device_collectives.h"

namespace replicant::kernels::cuda {

// One rank of a group that NCCL connects: DeviceRank in the library's own
// types. The context of the rank's device is current in every call.
//
// Thread-safety: one call at a time, and none after Abort().
class NcclRank {
 public:
  virtual ~NcclRank() = default;

  // Throws DeviceError.
  virtual void Launch(const DeviceCall& call, CUstream stream) = 0;
  [[nodiscard]] virtual DeviceRank::Status Poll() = 0;
  virtual void Leave() = 0;
  // Ends the rank's calls at once, and returns when the graphs that have any
  // are destroyed.
  virtual void Abort() = 0;
};

// NCCL, or its substitute in tests.
//
// Thread-safety: any thread.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;

  // "2.28.9". Throws DeviceError if the library is missing.
  virtual std::string version() = 0;
  // The bytes of a new unique id. Throws DeviceError.
  virtual std::string NewUniqueId() = 0;
  // Starts to join on the device of the current context, without waiting for
  // the others. Throws DeviceError.
  virtual std::unique_ptr<NcclRank> Join(const std::string& unique_id, int rank,
                                         int size) = 0;
};

// NCCL 2, found at run time by the first call that needs it. Communicators do
// not block, so that the caller may give up waiting for a rank that never
// comes. Calls throw DeviceError if `file` cannot be loaded or is older than
// the header that it was built with.
std::unique_ptr<NcclLibrary> MakeNccl(std::string file = "libnccl.so.2");

}  // namespace replicant::kernels::cuda
