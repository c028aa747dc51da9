# Decides whether the MPI communicator is built; sets REPLICANT_HAS_MPI.
# replicator/comm compiles its MPI files if it is set.
set(REPLICANT_HAS_MPI OFF)
if(NOT REPLICANT_MPI STREQUAL "OFF")
  # the C interface only
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(REPLICANT_HAS_MPI ON)
  elseif(REPLICANT_MPI STREQUAL "ON")
    message(FATAL_ERROR "REPLICANT_MPI=ON, but MPI was not found; "
      "hint: install libopenmpi-dev and openmpi-bin, or set MPI_HOME")
  endif()
endif()
if(REPLICANT_HAS_MPI)
  message(STATUS "MPI: ${MPI_CXX_VERSION}, ${MPIEXEC_EXECUTABLE}")
elseif(REPLICANT_MPI STREQUAL "OFF")
  message(STATUS "MPI: off (REPLICANT_MPI=OFF)")
else()
  message(STATUS "MPI: off (libopenmpi-dev was not found)")
endif()
# Whether tests may run MPI: ThreadSanitizer does not see inside the library.
set(REPLICANT_TESTS_MPI OFF)
if(REPLICANT_HAS_MPI AND NOT REPLICANT_SANITIZE MATCHES "thread")
  set(REPLICANT_TESTS_MPI ON)
endif()
