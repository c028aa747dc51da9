// The functions of a build without the header of PJRT.
#include "base/error.h"
#include "replicator/pjrt/pjrt_replicator.h"

namespace replicant::replicator {

bool HasPjrt() { return false; }

std::unique_ptr<Replicator> MakePjrtReplicator(
    const ReplicationConfig& /*config*/, uint64_t /*seed*/,
    const kernels::BackendFactory& /*make_backend*/) {
  throw DeviceError(
      "backend pjrt: this build has no PJRT; hint: REPLICANT_WITH_PJRT=1 "
      "scripts/setup, and configure again");
}

}  // namespace replicant::replicator
