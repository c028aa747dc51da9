#include <dlfcn.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"
#include "tests/support/fake_pjrt/fake_pjrt.h"

namespace replicant::testing {

FakePlugin::FakePlugin() {
  static std::atomic<int> count = 0;
  file_ = std::filesystem::temp_directory_path() /
          ("fake_pjrt_" + std::to_string(getpid()) + "_" +
           std::to_string(count++) + ".so");
  std::filesystem::copy_file(REPLICANT_FAKE_PJRT, file_,
                             std::filesystem::copy_options::overwrite_existing);
  // loaded for good, as a plugin is
  void* const library = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
  REPLICANT_CHECK(library != nullptr, "{}", dlerror());
  const auto get_state =
      reinterpret_cast<FakePjrt* (*)()>(dlsym(library, "GetFakePjrt"));
  REPLICANT_CHECK(get_state != nullptr, "no GetFakePjrt");
  state_ = get_state();
}

FakePlugin::~FakePlugin() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

}  // namespace replicant::testing
