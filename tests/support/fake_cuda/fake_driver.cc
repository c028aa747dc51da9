#include "tests/support/fake_cuda/fake_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "core/base/check.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_kernels.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#endif

namespace replicant::testing {
namespace {

using kernels::cuda::KernelLaunch;
using kernels::cuda::MemoryRange;

uintptr_t NumberOf(const void* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

// Handles are numbers, so that a use of one as an address is seen.
template <typename Handle>
Handle HandleOf(uintptr_t number) {
  return reinterpret_cast<Handle>(number);
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
  return calls_;
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
    names.push_back(fmt::format("{} bytes of memory", allocation.size_bytes));
  }
  const auto add = [&](size_t count, const char* what) {
    if (count > 0) names.push_back(fmt::format("{} {}", count, what));
  };
  add(streams_.size(), "streams");
  add(events_.size(), "events");
  add(modules_.size(), "modules");
  add(static_cast<size_t>(num_contexts_), "contexts");
  return names;
}

void FakeDriver::FailCall(size_t index, CUresult result) {
  const MutexLock lock(mutex_);
  failures_[index] = result;
}

std::optional<CUresult> FakeDriver::Begin(const std::string& call,
                                          bool needs_context) {
  const size_t index = calls_.size();
  calls_.push_back(call);
  if (needs_context && current_[std::this_thread::get_id()] == nullptr) {
    Problem(fmt::format("{}: no current context", call));
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto failure = failures_.find(index);
  if (failure == failures_.end()) return std::nullopt;
  return failure->second;
}

void FakeDriver::Problem(const std::string& text) { problems_.push_back(text); }

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

CUresult FakeDriver::DeviceGetAttribute(int* value,
                                        CUdevice_attribute attribute,
                                        CUdevice /*device*/) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDeviceGetAttribute", false)) {
    return *failure;
  }
  // those of an H100
  static const std::map<CUdevice_attribute, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132}};
  const auto found = values.find(attribute);
  if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::DevicePrimaryCtxRetain(CUcontext* context,
                                            CUdevice device) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuDevicePrimaryCtxRetain", false)) {
    return *failure;
  }
  ++num_contexts_;
  *context = HandleOf<CUcontext>(static_cast<uintptr_t>(device) + 1);
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

CUresult FakeDriver::MemAlloc(CUdeviceptr* address, size_t size_bytes) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemAlloc")) return *failure;
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes > options_.memory_size_bytes - allocated_bytes_) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (size_bytes + page - 1) / page * page;
  void* pages =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REPLICANT_CHECK(pages != MAP_FAILED, "mmap of {} bytes", mapped);
  ASAN_POISON_MEMORY_REGION(pages, mapped);
  *address = reinterpret_cast<CUdeviceptr>(pages);
  allocations_[*address] = {.size_bytes = size_bytes, .mapped_bytes = mapped};
  allocated_bytes_ += size_bytes;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::MemFree(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuMemFree");
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) {
    Problem("cuMemFree: not an allocation");
    return CUDA_ERROR_INVALID_VALUE;
  }
  ASAN_UNPOISON_MEMORY_REGION(PointerTo(address), found->second.mapped_bytes);
  munmap(PointerTo(address), found->second.mapped_bytes);
  allocated_bytes_ -= found->second.size_bytes;
  allocations_.erase(found);
  return failure.value_or(CUDA_SUCCESS);
}

FakeDriver::Allocation* FakeDriver::Find(const std::string& user,
                                         const MemoryRange& range,
                                         CUdeviceptr* start) {
  auto after = allocations_.upper_bound(range.address);
  if (after != allocations_.begin()) {
    const auto found = std::prev(after);
    if (range.address + range.size_bytes <=
        found->first + found->second.size_bytes) {
      *start = found->first;
      return &found->second;
    }
  }
  Problem(fmt::format("{}: an operand of {} bytes lies in no allocation", user,
                      range.size_bytes));
  return nullptr;
}

CUresult FakeDriver::Run(const std::string& name, CUstream stream,
                         std::span<const MemoryRange> reads,
                         std::span<const MemoryRange> writes,
                         const std::function<void()>& work) {
  if (!IsStream(name.c_str(), stream)) return CUDA_ERROR_INVALID_HANDLE;
  Clock& clock = streams_[NumberOf(stream)];
  // work is ordered after what the thread that issues it has waited for
  clock.Join(HostClock());
  const uint64_t tick = clock.Advance(NumberOf(stream));
  std::map<CUdeviceptr, Allocation*> touched;
  const auto note = [&](const MemoryRange& range, bool is_write) {
    CUdeviceptr start = 0;
    Allocation* allocation = Find(name, range, &start);
    if (allocation == nullptr) return false;
    touched[start] = allocation;
    const size_t begin = range.address - start;
    const auto conflict =
        allocation->history.Add({.begin = begin,
                                 .end = begin + range.size_bytes,
                                 .is_write = is_write,
                                 .stream = NumberOf(stream),
                                 .tick = tick,
                                 .name = name},
                                clock);
    if (conflict) {
      Problem(fmt::format("{} {} what {} {} on another stream, without order",
                          name, is_write ? "writes" : "reads", conflict->name,
                          conflict->is_write ? "writes" : "reads"));
    }
    return true;
  };
  for (const MemoryRange& range : reads) {
    if (!note(range, false)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (const MemoryRange& range : writes) {
    if (!note(range, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (const auto& [start, allocation] : touched) {
    mprotect(PointerTo(start), allocation->mapped_bytes,
             PROT_READ | PROT_WRITE);
  }
  for (const auto& ranges : {reads, writes}) {
    for (const MemoryRange& range : ranges) {
      ASAN_UNPOISON_MEMORY_REGION(PointerTo(range.address), range.size_bytes);
    }
  }
  work();
  for (const auto& [start, allocation] : touched) {
    ASAN_POISON_MEMORY_REGION(PointerTo(start), allocation->mapped_bytes);
    mprotect(PointerTo(start), allocation->mapped_bytes, PROT_NONE);
  }
  return CUDA_SUCCESS;
}

CUresult FakeDriver::RunOnHost(const std::string& name, CUstream stream,
                               std::span<const MemoryRange> reads,
                               std::span<const MemoryRange> writes,
                               const std::function<void()>& work) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin(name)) return *failure;
  launches_.push_back(name);
  return Run(name, stream, reads, writes, work);
}

CUresult FakeDriver::MemcpyHtoDAsync(CUdeviceptr to, const void* from,
                                     size_t size_bytes, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemcpyHtoDAsync")) return *failure;
  const MemoryRange target{to, size_bytes};
  return Run("cuMemcpyHtoDAsync", stream, {}, {&target, 1},
             [&] { std::memcpy(PointerTo(to), from, size_bytes); });
}

CUresult FakeDriver::MemcpyDtoHAsync(void* to, CUdeviceptr from,
                                     size_t size_bytes, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemcpyDtoHAsync")) return *failure;
  const MemoryRange source{from, size_bytes};
  return Run("cuMemcpyDtoHAsync", stream, {&source, 1}, {},
             [&] { std::memcpy(to, PointerTo(from), size_bytes); });
}

CUresult FakeDriver::MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from,
                                     size_t size_bytes, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemcpyDtoDAsync")) return *failure;
  const MemoryRange source{from, size_bytes};
  const MemoryRange target{to, size_bytes};
  return Run("cuMemcpyDtoDAsync", stream, {&source, 1}, {&target, 1},
             [&] { std::memcpy(PointerTo(to), PointerTo(from), size_bytes); });
}

bool FakeDriver::IsStream(const char* call, CUstream stream) {
  if (streams_.contains(NumberOf(stream))) return true;
  Problem(fmt::format("{}: not a stream", call));
  return false;
}

bool FakeDriver::IsEvent(const char* call, CUevent event) {
  if (events_.contains(NumberOf(event))) return true;
  Problem(fmt::format("{}: not an event", call));
  return false;
}

CUresult FakeDriver::StreamCreate(CUstream* stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamCreate")) return *failure;
  streams_[next_handle_] = {};
  *stream = HandleOf<CUstream>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::StreamDestroy(CUstream stream) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuStreamDestroy");
  if (!IsStream("cuStreamDestroy", stream)) return CUDA_ERROR_INVALID_HANDLE;
  streams_.erase(NumberOf(stream));
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::StreamSynchronize(CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamSynchronize")) return *failure;
  if (!IsStream("cuStreamSynchronize", stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  HostClock().Join(streams_[NumberOf(stream)]);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::StreamWaitEvent(CUstream stream, CUevent event) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamWaitEvent")) return *failure;
  if (!IsStream("cuStreamWaitEvent", stream) ||
      !IsEvent("cuStreamWaitEvent", event)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  streams_[NumberOf(stream)].Join(events_[NumberOf(event)]);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::EventCreate(CUevent* event) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventCreate")) return *failure;
  events_[next_handle_] = {};
  *event = HandleOf<CUevent>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::EventDestroy(CUevent event) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuEventDestroy");
  if (!IsEvent("cuEventDestroy", event)) return CUDA_ERROR_INVALID_HANDLE;
  events_.erase(NumberOf(event));
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::EventRecord(CUevent event, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventRecord")) return *failure;
  if (!IsStream("cuEventRecord", stream) || !IsEvent("cuEventRecord", event)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  events_[NumberOf(event)] = streams_[NumberOf(stream)];
  return CUDA_SUCCESS;
}

CUresult FakeDriver::EventSynchronize(CUevent event) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventSynchronize")) return *failure;
  if (!IsEvent("cuEventSynchronize", event)) return CUDA_ERROR_INVALID_HANDLE;
  HostClock().Join(events_[NumberOf(event)]);
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
      launches_.push_back(name);
      return Run(name, stream, launch.reads, launch.writes,
                 [&] { function.run(launch.argument, launch.count); });
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
