#pragma once

#include <span>

namespace replicant::testing {

// MPI_Allreduce of a sum, in place, over all processes; MPI is initialised.
// Nothing without MPI.
void MpiAllReduce(std::span<float> values);

}  // namespace replicant::testing
