#include "tests/support/fake_cuda/fake_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "engine/kernels/cuda/described_device.h"
#include "tests/support/fake_cuda/fake_driver_parts.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_kernels.h"

namespace replicant::testing {
using kernels::cuda::KernelLaunch;
namespace {

CUcontext ContextOf(int device) {
  return HandleOf<CUcontext>(static_cast<uintptr_t>(device) + 1);
}

}  // namespace

FakeDriver::FakeDriver(const FakeDriverOptions& options) : options_(options) {}

FakeDriver::~FakeDriver() {
  for (const auto& [address, allocation] : allocations_) {
    ASAN_UNPOISON_MEMORY_REGION(PointerTo(address), allocation.mapped_bytes);
    munmap(PointerTo(address), allocation.mapped_bytes);
  }
  for (const auto& [number, module] : modules_) {
    if (module.library != nullptr) dlclose(module.library);
  }
}

std::vector<std::string> FakeDriver::calls() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> names;
  names.reserve(calls_.size());
  for (const Call& call : calls_) names.push_back(call.name);
  return names;
}

std::vector<std::string> FakeDriver::calls_on(int device) const {
  const MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const Call& call : calls_) {
    if (call.context == ContextOf(device)) names.push_back(call.name);
  }
  return names;
}

std::vector<std::string> FakeDriver::launches() const {
  const MutexLock lock(mutex_);
  return launches_;
}

std::vector<std::string> FakeDriver::problems() const {
  const MutexLock lock(mutex_);
  return problems_;
}

std::vector<std::string> FakeDriver::live() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [address, allocation] : allocations_) {
    names.push_back(fmt::format("{} bytes of {}memory", allocation.size_bytes,
                                allocation.is_host ? "pinned " : ""));
  }
  const auto add = [&](size_t count, const char* what) {
    if (count > 0) names.push_back(fmt::format("{} {}", count, what));
  };
  add(streams_.size(), "streams");
  add(events_.size(), "events");
  add(captures_.size(), "captures");
  add(graphs_.size(), "graphs");
  add(executables_.size(), "executable graphs");
  add(modules_.size(), "modules");
  add(static_cast<size_t>(num_contexts_), "contexts");
  return names;
}

void FakeDriver::FailCall(size_t index, CUresult result) {
  const MutexLock lock(mutex_);
  failures_[index] = result;
}

void FakeDriver::FailNext(const std::string& call, int device,
                          CUresult result) {
  const MutexLock lock(mutex_);
  next_failures_[{call, ContextOf(device)}] = result;
}

void FakeDriver::Report(const std::string& problem) {
  const MutexLock lock(mutex_);
  Problem(problem);
}

std::optional<CUresult> FakeDriver::Begin(const std::string& call,
                                          bool needs_context) {
  const size_t index = calls_.size();
  CUcontext const context = current_[std::this_thread::get_id()];
  calls_.push_back({.name = call, .context = context});
  if (needs_context && context == nullptr) {
    Problem(fmt::format("{}: no current context", call));
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto failure = failures_.find(index);
  if (failure != failures_.end()) return failure->second;
  if (const auto next = next_failures_.extract({call, context})) {
    return next.mapped();
  }
  // what a capture in the mode "thread local" forbids
  static const std::set<std::string> forbidden = {
      "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost",
      "cuModuleUnload", "cuStreamSynchronize", "cuModuleLoadData",
      "cuGraphLaunch", "cuEventSynchronize",
      // it allocates and waits
      "ncclCommInitRankConfig"};
  if (Capture* const capture = OwnCapture();
      capture != nullptr && forbidden.contains(call)) {
    capture->is_invalid = true;
    Problem(fmt::format("{}: within a capture", call));
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return std::nullopt;
}

void FakeDriver::Problem(const std::string& text) { problems_.push_back(text); }

CUresult FakeDriver::Note(const std::string& call) {
  const MutexLock lock(mutex_);
  return Begin(call).value_or(CUDA_SUCCESS);
}

int FakeDriver::current_device() const {
  const MutexLock lock(mutex_);
  const auto found = current_.find(std::this_thread::get_id());
  REPLICANT_CHECK(found != current_.end(), "no current context");
  return static_cast<int>(NumberOf(found->second)) - 1;
}

CUresult FakeDriver::Init() {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuInit", false)) return *failure;
  return options_.init_result;
}

CUresult FakeDriver::DriverGetVersion(int* version) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDriverGetVersion", false)) return *failure;
  *version = options_.driver_version;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DeviceGetCount(int* count) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDeviceGetCount", false)) return *failure;
  *count = options_.num_devices;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DeviceGet(CUdevice* device, int index) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDeviceGet", false)) return *failure;
  *device = index;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DeviceGetName(std::string* name, CUdevice /*device*/) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDeviceGetName", false)) return *failure;
  *name = "fake H100";
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DeviceGetUuid(std::string* uuid, CUdevice device) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDeviceGetUuid", false)) return *failure;
  *uuid = std::string(16, static_cast<char>(0xA0 + device));
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DeviceGetAttribute(int* value,
                                        CUdevice_attribute attribute,
                                        CUdevice /*device*/) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDeviceGetAttribute", false)) {
    return *failure;
  }
  return kernels::cuda::H100Attribute(value, attribute);
}

CUresult FakeDriver::DevicePrimaryCtxRetain(CUcontext* context,
                                            CUdevice device) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDevicePrimaryCtxRetain", false)) {
    return *failure;
  }
  ++num_contexts_;
  *context = ContextOf(device);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DevicePrimaryCtxRelease(CUdevice /*device*/) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuDevicePrimaryCtxRelease", false);
  --num_contexts_;
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::CtxSetCurrent(CUcontext context) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuCtxSetCurrent", false)) return *failure;
  current_[std::this_thread::get_id()] = context;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::MemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemGetInfo")) return *failure;
  *total_bytes = options_.memory_size_bytes;
  *free_bytes = *total_bytes - allocated_bytes_;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::ModuleLoadData(CUmodule* module, const void* image) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuModuleLoadData")) return *failure;
  Module loaded{.library = nullptr, .functions = {}};
  const std::string_view text = static_cast<const char*>(image);
  if (text.starts_with(kHostImagePrefix)) {
    const std::string path(text.substr(kHostImagePrefix.size()));
    loaded.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REPLICANT_CHECK(loaded.library != nullptr, "{}", dlerror());
  }
  modules_[next_handle_] = std::move(loaded);
  *module = HandleOf<CUmodule>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::ModuleUnload(CUmodule module) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuModuleUnload");
  const auto found = modules_.find(NumberOf(module));
  if (found == modules_.end()) {
    Problem("cuModuleUnload: not a module");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (found->second.library != nullptr) dlclose(found->second.library);
  modules_.erase(found);
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::ModuleGetFunction(CUfunction* function, CUmodule module,
                                       const char* name) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuModuleGetFunction")) return *failure;
  const auto found = modules_.find(NumberOf(module));
  if (found == modules_.end()) {
    Problem("cuModuleGetFunction: not a module");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  HostFunction run = nullptr;
  if (found->second.library != nullptr) {
    run = reinterpret_cast<HostFunction>(dlsym(found->second.library, name));
  } else if (HostKernels().contains(name)) {
    run = HostKernels().at(name);
  }
  if (run == nullptr) return CUDA_ERROR_NOT_FOUND;
  Function& entry = found->second.functions[name];
  entry = {.name = name, .run = run};
  *function = reinterpret_cast<CUfunction>(&entry);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::LaunchKernel(const KernelLaunch& launch, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuLaunchKernel")) return *failure;
  for (const auto& [number, module] : modules_) {
    for (const auto& [name, function] : module.functions) {
      if (reinterpret_cast<CUfunction>(const_cast<Function*>(&function)) !=
          launch.function) {
        continue;
      }
      if (launch.num_blocks < 1 || launch.threads_per_block < 1 ||
          launch.threads_per_block > 1024) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      // the argument as it is now, in words of any alignment
      const auto argument = std::make_shared<std::vector<std::max_align_t>>(
          launch.argument_size_bytes / sizeof(std::max_align_t) + 1);
      std::memcpy(argument->data(), launch.argument,
                  launch.argument_size_bytes);
      return Issue(
          {.name = name,
           .reads = {launch.reads.begin(), launch.reads.end()},
           .writes = {launch.writes.begin(), launch.writes.end()},
           .run = [run = function.run, argument,
                   count = launch.count] { run(argument->data(), count); },
           .module = number},
          stream);
    }
  }
  Problem("cuLaunchKernel: not a function of a loaded module");
  return CUDA_ERROR_INVALID_HANDLE;
}

std::string FakeDriver::DescribeError(CUresult error) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "CUDA_ERROR_OUT_OF_MEMORY: out of memory";
    case CUDA_ERROR_UNKNOWN:
      return "CUDA_ERROR_UNKNOWN: unknown error";
    default:
      return fmt::format("CUDA error {}", static_cast<int>(error));
  }
}

}  // namespace replicant::testing
