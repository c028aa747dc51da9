# Finds oneDNN in the `onednn-cpu-gomp` wheels of REPLICANT_VENV, or under a
# prefix named by OneDNN_ROOT. Nothing is cached, as in FindMuJoCo.
#
# Defines OneDNN::OneDNN, OneDNN_VERSION, OneDNN_LIBRARY, OneDNN_INCLUDE_DIR.
replicant_root(OneDNN _onednn_root _onednn_only)
if(NOT _onednn_root)
  set(_onednn_root "${REPLICANT_VENV}")
endif()

find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp
  HINTS ${_onednn_root} PATH_SUFFIXES include ${_onednn_only} NO_CACHE)
string(REGEX REPLACE "/$" "" OneDNN_INCLUDE_DIR "${OneDNN_INCLUDE_DIR}")
find_library(OneDNN_LIBRARY dnnl
  HINTS ${_onednn_root} PATH_SUFFIXES lib ${_onednn_only} NO_CACHE)

if(OneDNN_INCLUDE_DIR)
  file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _onednn_defines
    REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" _onednn_numbers "${_onednn_defines}")
  list(JOIN _onednn_numbers "." OneDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
  REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
  VERSION_VAR OneDNN_VERSION
  REASON_FAILURE_MESSAGE
    "searched: ${_onednn_root}, hint: run scripts/setup, or set OneDNN_ROOT")

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN SHARED IMPORTED GLOBAL)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
