# Decides whether the client of PJRT plugins is built; sets REPLICANT_HAS_PJRT.
# Only the header of the C interface is needed, which wheels of XLA ship:
# xla-cpu-pjrt (scripts/pjrt_requirements.txt) and tensorflow-cpu.
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
if(REPLICANT_HAS_PJRT)
  message(STATUS "PJRT: ${PJRT_VERSION}, ${PJRT_INCLUDE_DIR}")
elseif(REPLICANT_PJRT STREQUAL "OFF")
  message(STATUS "PJRT: off (REPLICANT_PJRT=OFF)")
else()
  message(STATUS "PJRT: off (no pjrt_c_api.h found)")
endif()
