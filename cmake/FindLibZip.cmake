# Finds libzip. Debian's own libzip-config.cmake also wants the command-line
# tools, which are another package.
#
# Defines LibZip::LibZip, LibZip_VERSION, LibZip_LIBRARY, LibZip_INCLUDE_DIR.
find_path(LibZip_INCLUDE_DIR zip.h)
find_library(LibZip_LIBRARY zip)
# a separate folder if the header depends on the architecture
find_path(LibZip_CONFIG_DIR zipconf.h)

if(LibZip_CONFIG_DIR)
  file(STRINGS "${LibZip_CONFIG_DIR}/zipconf.h" _libzip_define
    REGEX "#define LIBZIP_VERSION ")
  string(REGEX MATCH "[0-9.]+" LibZip_VERSION "${_libzip_define}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibZip
  REQUIRED_VARS LibZip_LIBRARY LibZip_INCLUDE_DIR LibZip_CONFIG_DIR
  VERSION_VAR LibZip_VERSION)

if(LibZip_FOUND AND NOT TARGET LibZip::LibZip)
  add_library(LibZip::LibZip UNKNOWN IMPORTED GLOBAL)
  set_target_properties(LibZip::LibZip PROPERTIES
    IMPORTED_LOCATION "${LibZip_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibZip_INCLUDE_DIR};${LibZip_CONFIG_DIR}")
endif()
mark_as_advanced(LibZip_LIBRARY LibZip_INCLUDE_DIR LibZip_CONFIG_DIR)
