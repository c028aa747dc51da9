#include <cuda.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <array>

#include "base/error.h"
#include "base/shared_library.h"
#include "engine/kernels/cuda/source_compiler.h"

namespace replicant::kernels::cuda {
namespace {

class Nvrtc : public SourceCompiler {
 public:
  Nvrtc()
      : library_(fmt::format("libnvrtc.so.{}", CUDA_VERSION / 1000),
                 "install NVRTC of the CUDA toolkit, and name its folder in "
                 "LD_LIBRARY_PATH") {
    library_.Find("nvrtcCreateProgram", &create_);
    library_.Find("nvrtcDestroyProgram", &destroy_);
    library_.Find("nvrtcCompileProgram", &compile_);
    library_.Find("nvrtcGetCUBINSize", &image_size_);
    library_.Find("nvrtcGetCUBIN", &image_);
    library_.Find("nvrtcGetProgramLogSize", &log_size_);
    library_.Find("nvrtcGetProgramLog", &log_);
    library_.Find("nvrtcGetErrorString", &error_text_);
  }

  std::string Compile(const std::string& source,
                      int compute_capability) override {
    nvrtcProgram program = nullptr;
    Check(
        create_(&program, source.c_str(), "generated.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
    const Destroyer destroyer{*this, program};
    const std::string architecture =
        fmt::format("--gpu-architecture=sm_{}", compute_capability);
    const std::array<const char*, 3> options = {architecture.c_str(),
                                                "--std=c++17", "--fmad=false"};
    const nvrtcResult result =
        compile_(program, static_cast<int>(options.size()), options.data());
    if (result != NVRTC_SUCCESS) {
      throw DeviceError(fmt::format("nvrtcCompileProgram: {}\n{}\n{}",
                                    error_text_(result), LogOf(program),
                                    source));
    }
    size_t size = 0;
    Check(image_size_(program, &size), "nvrtcGetCUBINSize");
    std::string image(size, '\0');
    Check(image_(program, image.data()), "nvrtcGetCUBIN");
    return image;
  }

 private:
  struct Destroyer {
    ~Destroyer() { nvrtc.destroy_(&program); }

    const Nvrtc& nvrtc;
    nvrtcProgram program;
  };

  void Check(nvrtcResult result, const char* call) const {
    if (result == NVRTC_SUCCESS) return;
    throw DeviceError(fmt::format("{}: {}", call, error_text_(result)));
  }

  std::string LogOf(nvrtcProgram program) const {
    size_t size = 0;
    if (log_size_(program, &size) != NVRTC_SUCCESS) return {};
    std::string log(size, '\0');
    if (log_(program, log.data()) != NVRTC_SUCCESS) return {};
    return log;
  }

  SharedLibrary library_;
  decltype(nvrtcCreateProgram)* create_;
  decltype(nvrtcDestroyProgram)* destroy_;
  decltype(nvrtcCompileProgram)* compile_;
  decltype(nvrtcGetCUBINSize)* image_size_;
  decltype(nvrtcGetCUBIN)* image_;
  decltype(nvrtcGetProgramLogSize)* log_size_;
  decltype(nvrtcGetProgramLog)* log_;
  decltype(nvrtcGetErrorString)* error_text_;
};

}  // namespace

std::unique_ptr<SourceCompiler> LoadNvrtc() {
  return std::make_unique<Nvrtc>();
}

}  // namespace replicant::kernels::cuda
