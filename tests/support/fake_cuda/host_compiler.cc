#include "tests/support/fake_cuda/host_compiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "base/error.h"

namespace replicant::testing {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class HostSourceCompiler : public kernels::cuda::SourceCompiler {
 public:
  std::string Compile(const std::string& source,
                      int /*compute_capability*/) override {
    const fs::path folder = REPLICANT_GENERATED_KERNELS;
    fs::create_directories(folder);
    const std::string stem =
        fmt::format("{:016x}", std::hash<std::string>{}(source));
    const fs::path library = folder / (stem + ".so");
    const fs::path kept_source = folder / (stem + ".cc");
    // another source may have the same hash
    if (!fs::exists(library) || ReadFile(kept_source) != source) {
      CompileTo(source, kept_source, library);
    }
    return std::string(kHostImagePrefix) + library.string();
  }

 private:
  // Other processes may do the same: files are complete when they get their
  // names.
  static void CompileTo(const std::string& source, const fs::path& kept_source,
                        const fs::path& library) {
    static std::atomic<int> counter = 0;
    const std::string own = fmt::format("{}.{}.{}", library.string(), getpid(),
                                        counter.fetch_add(1));
    const std::string own_source = own + ".cc";
    std::ofstream(own_source) << source;
    // no contraction of products and sums, as the device code
    const std::string command = fmt::format(
        "'{}' -std=c++17 -O1 -ffp-contract=off -fPIC -shared {} -o '{}' '{}' "
        "2>'{}'",
        REPLICANT_CXX_COMPILER, REPLICANT_GENERATED_FLAGS, own, own_source,
        own + ".log");
    // the command has no input from outside
    const int status = std::system(command.c_str());  // NOLINT(cert-env33-c)
    if (status != 0) {
      throw DeviceError(
          fmt::format("{}\n{}\n{}", command, ReadFile(own + ".log"), source));
    }
    fs::remove(own + ".log");
    fs::rename(own_source, kept_source);
    fs::rename(own, library);
  }
};

}  // namespace

std::unique_ptr<kernels::cuda::SourceCompiler> MakeHostSourceCompiler() {
  return std::make_unique<HostSourceCompiler>();
}

}  // namespace replicant::testing
