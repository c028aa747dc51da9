# Finds oneDNN in the `onednn-cpu-gomp` wheels of REPLICANT_VENV, or under a
# prefix named by OneDNN_ROOT.
#
# Defines OneDNN::OneDNN, OneDNN_VERSION, OneDNN_LIBRARY, OneDNN_INCLUDE_DIR.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp
  HINTS "${OneDNN_ROOT}" "${REPLICANT_VENV}" PATH_SUFFIXES include)
find_library(OneDNN_LIBRARY dnnl
  HINTS "${OneDNN_ROOT}" "${REPLICANT_VENV}" PATH_SUFFIXES lib)

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
  REASON_FAILURE_MESSAGE "hint: run scripts/setup, or set OneDNN_ROOT")

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN SHARED IMPORTED GLOBAL)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
mark_as_advanced(OneDNN_LIBRARY OneDNN_INCLUDE_DIR)
