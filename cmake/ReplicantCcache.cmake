# Compiles through ccache if it is installed. Not with REPLICANT_PCH: ccache
# would read the precompiled header, 110 MB, for each file.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT REPLICANT_PCH)
  set(launcher "${CCACHE_PROGRAM}")
  if(REPLICANT_UNITY)
    # by relative paths build folders share the files that each of them makes
    set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
                 "${launcher}")
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
