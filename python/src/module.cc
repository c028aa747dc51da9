#include "python/src/module.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <string_view>
#include <typeinfo>

#include "base/error.h"
#include "base/log.h"

namespace replicant::python {
namespace nb = nanobind;
namespace {

void Raise(const char* class_name, const Error& error) {
  const nb::object type =
      nb::module_::import_("replicant.errors").attr(class_name);
  PyErr_SetString(type.ptr(), error.what());
}

// Called by nanobind, with the GIL, for an exception that it does not know.
void Translate(const std::exception_ptr& exception, void* /*payload*/) {
  try {
    std::rethrow_exception(exception);
  } catch (const InvalidArgument& error) {
    Raise("InvalidArgument", error);
  } catch (const ConfigError& error) {
    Raise("ConfigError", error);
  } catch (const IoError& error) {
    Raise("IoError", error);
  } catch (const DeviceError& error) {
    Raise("DeviceError", error);
  } catch (const CommError& error) {
    Raise("CommError", error);
  } catch (const Error& error) {
    // any module's translator may be the first, and not every one knows scenes
    const std::string_view type = typeid(error).name();
    Raise(type.ends_with("UnsupportedSceneE") ? "UnsupportedScene" : "Error",
          error);
  }
}

}  // namespace

void TranslateErrors() { nb::register_exception_translator(Translate); }

ExclusiveCall::ExclusiveCall(bool* is_busy, const char* object)
    : is_busy_(is_busy) {
  if (*is_busy) {
    throw Error(
        fmt::format("another call of {} is under way; hint: one thread at a "
                    "time, and none from a task's own functions",
                    object));
  }
  *is_busy = true;
}

void SetUpModule() {
  InitLogging({.role = "python", .level = LogLevel::kWarning});
  // no flush thread, which a fork would lose: a warning is written at once
  // anyway
  spdlog::flush_every(std::chrono::seconds(0));
  TranslateErrors();
  // objects that a daemon thread holds when Python ends are not a module's leak
  nb::set_leak_warnings(false);
}

}  // namespace replicant::python
