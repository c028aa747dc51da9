#include "bench/programs/mpi_all_reduce.h"

#if REPLICANT_MPI
#include <mpi.h>
#endif

namespace replicant::testing {

void MpiAllReduce([[maybe_unused]] std::span<float> values) {
#if REPLICANT_MPI
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#endif
}

}  // namespace replicant::testing
