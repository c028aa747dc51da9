# Finds MuJoCo's C library in the `mujoco` wheel of REPLICANT_VENV, or where
# MuJoCo_ROOT says: a release folder with include/ and lib/, or the folder
# `mujoco` of an installed wheel. Nothing is cached: another root takes effect in
# an old build folder, too.
#
# Defines MuJoCo::MuJoCo, MuJoCo_VERSION, MuJoCo_LIBRARY, MuJoCo_INCLUDE_DIR.
replicant_root(MuJoCo _mujoco_root _mujoco_only)
if(NOT _mujoco_root)
  file(GLOB _mujoco_root "${REPLICANT_VENV}/lib/python3*/site-packages/mujoco")
endif()

find_path(MuJoCo_INCLUDE_DIR mujoco/mujoco.h
  HINTS ${_mujoco_root} PATH_SUFFIXES include ${_mujoco_only} NO_CACHE)
# NO_CACHE leaves a slash at the end
string(REGEX REPLACE "/$" "" MuJoCo_INCLUDE_DIR "${MuJoCo_INCLUDE_DIR}")

if(MuJoCo_INCLUDE_DIR)
  # mjVERSION_HEADER is 3017000 for 3.17.0: major, two or three digits each
  file(STRINGS "${MuJoCo_INCLUDE_DIR}/mujoco/mujoco.h" _mujoco_define
    REGEX "#define mjVERSION_HEADER")
  string(REGEX MATCH "[0-9]+$" _mujoco_number "${_mujoco_define}")
  if(_mujoco_number GREATER 999999)
    math(EXPR _mujoco_major "${_mujoco_number} / 1000000")
    math(EXPR _mujoco_minor "${_mujoco_number} / 1000 % 1000")
    math(EXPR _mujoco_patch "${_mujoco_number} % 1000")
  else()
    math(EXPR _mujoco_major "${_mujoco_number} / 100")
    math(EXPR _mujoco_minor "${_mujoco_number} / 10 % 10")
    math(EXPR _mujoco_patch "${_mujoco_number} % 10")
  endif()
  set(MuJoCo_VERSION "${_mujoco_major}.${_mujoco_minor}.${_mujoco_patch}")
  # the wheel holds only the versioned file, next to the folder include
  cmake_path(GET MuJoCo_INCLUDE_DIR PARENT_PATH _mujoco_folder)
  find_library(MuJoCo_LIBRARY NAMES libmujoco.so.${MuJoCo_VERSION} mujoco
    HINTS "${_mujoco_folder}/lib" "${_mujoco_folder}" NO_DEFAULT_PATH NO_CACHE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MuJoCo
  REQUIRED_VARS MuJoCo_LIBRARY MuJoCo_INCLUDE_DIR
  VERSION_VAR MuJoCo_VERSION
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE
    "searched: ${_mujoco_root}, hint: run scripts/setup, or set MuJoCo_ROOT")

if(MuJoCo_FOUND AND NOT TARGET MuJoCo::MuJoCo)
  add_library(MuJoCo::MuJoCo INTERFACE IMPORTED GLOBAL)
  # a target with the property loads the library at run time
  set_target_properties(MuJoCo::MuJoCo PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${MuJoCo_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES
      "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:REPLICANT_LOADS_MUJOCO>>>:${MuJoCo_LIBRARY}>")
endif()
