# Every third-party library, found once, here. scripts/setup installs them all.

include(ReplicantRoot)

# replicant_find(<package> <debian package> [find_package arguments])
# Finds an installed package, or stops and names the Debian package to install.
function(replicant_find package debian_package)
  replicant_root(${package} root only)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found; hint: run scripts/setup, "
      "or install the Debian package ${debian_package}, "
      "or name its prefix in CMAKE_PREFIX_PATH")
  endif()
endfunction()

# Makes imported targets visible in every folder, not only in the function.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
replicant_find(fmt libfmt-dev)
replicant_find(hwy libhwy-dev)
replicant_find(spdlog libspdlog-dev)

# From the wheels in REPLICANT_VENV, or from MuJoCo_ROOT and OneDNN_ROOT.
# MuJoCo's structs change with each minor version, so each version listed was
# built and compared with recordings (docs/environments.md, "MuJoCo versions").
if(NOT IS_DIRECTORY "${REPLICANT_VENV}")
  message(FATAL_ERROR "REPLICANT_VENV: ${REPLICANT_VENV}: no such folder; "
    "hint: run scripts/setup, or name a Python environment with MuJoCo, oneDNN and dm_control")
endif()
set(REPLICANT_MUJOCO_VERSIONS 3.17.0 4.0.0)
find_package(MuJoCo REQUIRED)
if(NOT MuJoCo_VERSION IN_LIST REPLICANT_MUJOCO_VERSIONS)
  list(JOIN REPLICANT_MUJOCO_VERSIONS ", " versions)
  message(FATAL_ERROR "MuJoCo ${MuJoCo_VERSION} in ${MuJoCo_INCLUDE_DIR} is not supported; "
    "supported: ${versions}; hint: set MuJoCo_ROOT to a supported one")
endif()
message(STATUS "MuJoCo ${MuJoCo_VERSION}: ${MuJoCo_LIBRARY}")

# of an installed copy, whose user wants no more
if(REPLICANT_RENDERER_ALONE)
  return()
endif()
if(REPLICANT_FUZZ)
  # fuzzers run no kernel, and clang would need its own OpenMP
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED GLOBAL)
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
replicant_find(CLI11 libcli11-dev)
replicant_find(Eigen3 libeigen3-dev)
replicant_find(JPEG libjpeg-dev)
replicant_find(LZ4 liblz4-dev)
replicant_find(nlohmann_json nlohmann-json3-dev)
replicant_find(PNG libpng-dev)
replicant_find(prometheus-cpp prometheus-cpp-dev)
replicant_find(Stb libstb-dev)
replicant_find(TIFF libtiff-dev)
replicant_find(tinyxml2 libtinyxml2-dev)
# Debian 13's has _FILE_OFFSET_BITS=64: nothing changes on x86-64, but a precompiled
# header without it fits no target that has it
get_target_property(tinyxml2_defines tinyxml2::tinyxml2 INTERFACE_COMPILE_DEFINITIONS)
if(tinyxml2_defines)
  list(REMOVE_ITEM tinyxml2_defines _FILE_OFFSET_BITS=64)
  set_target_properties(tinyxml2::tinyxml2 PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "${tinyxml2_defines}")
endif()
replicant_find(WebP libwebp-dev)
replicant_find(yaml-cpp libyaml-cpp-dev)
replicant_find(ZeroMQ libzmq3-dev 4.3)
replicant_find(zstd libzstd-dev)
# whether tests and bench are built
set(REPLICANT_HAS_TESTS OFF)
if(REPLICANT_TESTS STREQUAL "AUTO")
  find_package(GTest QUIET)
  if(TARGET GTest::gmock)
    set(REPLICANT_HAS_TESTS ON)
  else()
    message(STATUS "Tests: off (libgmock-dev was not found)")
  endif()
elseif(REPLICANT_TESTS)
  replicant_find(GTest libgmock-dev)
  set(REPLICANT_HAS_TESTS ON)
endif()

find_package(OneDNN 3.2 REQUIRED)
message(STATUS "oneDNN ${OneDNN_VERSION}: ${OneDNN_LIBRARY}")

# The Control Suite's models, in the dm_control wheel of REPLICANT_VENV.
file(GLOB REPLICANT_SUITE_FOLDER
  "${REPLICANT_VENV}/lib/python3*/site-packages/dm_control/suite")
if(NOT REPLICANT_SUITE_FOLDER)
  message(FATAL_ERROR "dm_control was not found in ${REPLICANT_VENV}; "
    "hint: run scripts/setup")
endif()
