# Compiles through ccache if it is installed. Not with REPLICANT_PCH: ccache
# would read the precompiled header, 110 MB, for each file.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT REPLICANT_PCH)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()
