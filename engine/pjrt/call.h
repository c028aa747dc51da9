#pragma once

#include <pjrt_c_api.h>
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "engine/pjrt/plugin.h"

// Calls `function` of a plugin with `args`, a <function>_Args whose other
// fields are set. Throws what Plugin::Check() throws.
#define PJRT_CALL(plugin, function, args)                        \
  do {                                                           \
    (args).struct_size = function##_Args_STRUCT_SIZE;            \
    (plugin).Check((plugin).api().function(&(args)), #function); \
  } while (false)

// Calls `function` where no exception may escape: the error goes to the log.
#define PJRT_CALL_NOTHROW(plugin, function, args) \
  do {                                            \
    try {                                         \
      PJRT_CALL(plugin, function, args);          \
    } catch (const DeviceError& error) {          \
      spdlog::warn("{}", error.what());           \
    }                                             \
  } while (false)
