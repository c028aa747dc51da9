#include "base/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace replicant {

SharedLibrary::SharedLibrary(const std::string& file, const std::string& hint)
    : file_(file),
      hint_(hint),
      handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw DeviceError(
        fmt::format("cannot load {}; hint: {}", dlerror(), hint_));
  }
}

void* SharedLibrary::Address(const char* name) const {
  void* address = dlsym(handle_, name);
  if (address == nullptr) {
    throw DeviceError(
        fmt::format("{} has no {}; hint: {}", file_, name, hint_));
  }
  return address;
}

}  // namespace replicant
