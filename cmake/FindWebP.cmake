# Finds the WebP libraries; their Debian package has no CMake file.
#
# Defines WebP::webp, WebP::webpdemux, WebP_LIBRARY, WebP_DEMUX_LIBRARY,
# WebP_INCLUDE_DIR.
find_path(WebP_INCLUDE_DIR webp/demux.h)
find_library(WebP_LIBRARY webp)
find_library(WebP_DEMUX_LIBRARY webpdemux)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(WebP
  REQUIRED_VARS WebP_LIBRARY WebP_DEMUX_LIBRARY WebP_INCLUDE_DIR)

if(WebP_FOUND AND NOT TARGET WebP::webpdemux)
  add_library(WebP::webp UNKNOWN IMPORTED GLOBAL)
  set_target_properties(WebP::webp PROPERTIES
    IMPORTED_LOCATION "${WebP_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${WebP_INCLUDE_DIR}")
  add_library(WebP::webpdemux UNKNOWN IMPORTED GLOBAL)
  set_target_properties(WebP::webpdemux PROPERTIES
    IMPORTED_LOCATION "${WebP_DEMUX_LIBRARY}"
    INTERFACE_LINK_LIBRARIES WebP::webp)
endif()
mark_as_advanced(WebP_LIBRARY WebP_DEMUX_LIBRARY WebP_INCLUDE_DIR)
