# Decides whether the client of PJRT plugins is built; sets REPLICANT_HAS_PJRT.
# Only the header of the C interface is needed, which wheels of XLA ship:
# xla-cpu-pjrt (scripts/packages/pjrt.txt) and tensorflow-cpu.
set(REPLICANT_HAS_PJRT OFF)
if(NOT REPLICANT_PJRT STREQUAL "OFF")
  file(GLOB _pjrt_wheels
    "${REPLICANT_VENV}/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/include"
    "${REPLICANT_VENV}/lib/python3*/site-packages/tensorflow/include/xla/pjrt/c")
  find_path(PJRT_INCLUDE_DIR pjrt_c_api.h HINTS ${_pjrt_wheels})
  mark_as_advanced(PJRT_INCLUDE_DIR)
  if(PJRT_INCLUDE_DIR)
    set(REPLICANT_HAS_PJRT ON)
    file(STRINGS "${PJRT_INCLUDE_DIR}/pjrt_c_api.h" _pjrt_defines
      REGEX "#define PJRT_API_(MAJOR|MINOR) ")
    string(REGEX MATCHALL "[0-9]+" _pjrt_numbers "${_pjrt_defines}")
    list(JOIN _pjrt_numbers "." PJRT_VERSION)
  elseif(REPLICANT_PJRT STREQUAL "ON")
    message(FATAL_ERROR "REPLICANT_PJRT=ON, but pjrt_c_api.h was not found; "
      "hint: REPLICANT_WITH_PJRT=1 scripts/setup, or set PJRT_INCLUDE_DIR")
  endif()
endif()
# XLA's plugin for the CPU, for tests
set(REPLICANT_TESTS_PJRT_CPU OFF)
if(REPLICANT_HAS_PJRT)
  file(GLOB _pjrt_plugins
    "${REPLICANT_VENV}/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt")
  find_file(PJRT_CPU_PLUGIN xla_cpu_pjrt.so HINTS ${_pjrt_plugins})
  mark_as_advanced(PJRT_CPU_PLUGIN)
  if(PJRT_CPU_PLUGIN)
    set(REPLICANT_TESTS_PJRT_CPU ON)
  endif()
endif()
if(REPLICANT_HAS_PJRT)
  set(_pjrt_tests "no plugin for tests")
  if(REPLICANT_TESTS_PJRT_CPU)
    set(_pjrt_tests "tests run ${PJRT_CPU_PLUGIN}")
  endif()
  message(STATUS "PJRT: ${PJRT_VERSION}, ${_pjrt_tests}")
elseif(REPLICANT_PJRT STREQUAL "OFF")
  message(STATUS "PJRT: off (REPLICANT_PJRT=OFF)")
else()
  message(STATUS "PJRT: off (no pjrt_c_api.h found)")
endif()
