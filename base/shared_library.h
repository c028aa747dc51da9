#pragma once

#include <string>

namespace replicant {

// A shared library that is found at run time (dlopen). It stays loaded until
// the process ends, because vendors' libraries do not unload cleanly.
class SharedLibrary {
 public:
  // Throws DeviceError "cannot load <reason>; hint: <hint>"; the reason of
  // dlopen() begins with the file.
  SharedLibrary(const std::string& file, const std::string& hint);

  // Sets `*function` to the function `name`. Throws DeviceError "<file> has no
  // <name>" with the hint.
  template <typename Function>
  void Find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(Address(name));
  }

 private:
  void* Address(const char* name) const;

  std::string file_;
  std::string hint_;
  void* handle_;
};

}  // namespace replicant
