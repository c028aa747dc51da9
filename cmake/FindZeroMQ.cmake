# Finds libzmq, 4.3 or newer. Only its C interface is used.
#
# Defines ZeroMQ::ZeroMQ, ZeroMQ_VERSION, ZeroMQ_LIBRARY, ZeroMQ_INCLUDE_DIR.
find_path(ZeroMQ_INCLUDE_DIR zmq.h)
find_library(ZeroMQ_LIBRARY zmq)

if(ZeroMQ_INCLUDE_DIR)
  file(STRINGS "${ZeroMQ_INCLUDE_DIR}/zmq.h" _zmq_defines
    REGEX "#define ZMQ_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" _zmq_numbers "${_zmq_defines}")
  list(JOIN _zmq_numbers "." ZeroMQ_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ZeroMQ
  REQUIRED_VARS ZeroMQ_LIBRARY ZeroMQ_INCLUDE_DIR
  VERSION_VAR ZeroMQ_VERSION)

if(ZeroMQ_FOUND AND NOT TARGET ZeroMQ::ZeroMQ)
  add_library(ZeroMQ::ZeroMQ UNKNOWN IMPORTED GLOBAL)
  set_target_properties(ZeroMQ::ZeroMQ PROPERTIES
    IMPORTED_LOCATION "${ZeroMQ_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ZeroMQ_INCLUDE_DIR}")
endif()
mark_as_advanced(ZeroMQ_LIBRARY ZeroMQ_INCLUDE_DIR)
