#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/kernels/cuda/driver.h"
#include "tests/support/fake_cuda/captured_graph.h"
#include "tests/support/fake_cuda/memory_order.h"

namespace replicant::testing {

// The host's memory that stands for device memory.
inline std::byte* PointerTo(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<std::byte*>(address);
}

struct FakeDriverOptions {
  int num_devices = 1;
  int driver_version = 13000;
  // Memory of each device.
  size_t memory_size_bytes = size_t{4} << 30;
  CUresult init_result = CUDA_SUCCESS;
  // Whether what one thread has waited for is done for all that come later,
  // because the threads order themselves by means that the driver does not see.
  bool host_threads_are_ordered = false;
};

// One stream's part of work that runs on several streams at once.
struct StreamPart {
  StreamPlace place;
  std::vector<kernels::cuda::MemoryRange> reads, writes;
};

// A CUDA driver without a GPU, which records and checks what its caller does.
//
// "Device memory" is host memory without access (PROT_NONE) except during the
// calls that may touch it; a build with AddressSanitizer opens no more than the
// ranges that a launch declares, so that a body that leaves its operands ends
// the process. Copies and launches run when they are issued, on the host:
// launches run the host-compiled bodies of the own kernels, or the
// host-compiled source of a generated one (HostSourceCompiler).
//
// Pinned memory of the host is closed to it while a copy may still use it,
// until the host has waited for the copy: a write then, or a read of what is
// being written, ends the process with SIGSEGV.
//
// A captured stream runs nothing. Launching the graph runs what was captured,
// in its order, on what its addresses then hold; each node's operands are
// checked anew. A launch returns when the graph is done: at a call between
// ranks it blocks its thread until all have come (Meet()), as a driver may.
//
// problems() lists what a real device would not have told:
// - an operand that lies in no live allocation, or leaves it;
// - two accesses to the same bytes, one a write, that no stream order, event or
//   synchronisation puts in an order;
// - a call without a current context, with a dead handle, or that frees twice;
// - while this thread captures: a call that allocates or waits, work on a
// stream
//   outside of the capture, which no launch of the graph would repeat, and a
//   copy from or to memory of the host that is not pinned;
// - pinned memory that is freed while a copy may use it;
// - a time between events that have none, or that the host has not waited for.
// live() lists what was not destroyed. FailCall() makes one call fail.
//
// Thread-safety: any thread.
class FakeDriver : public kernels::cuda::Driver {
 public:
  explicit FakeDriver(const FakeDriverOptions& options = {});
  ~FakeDriver() override;

  // Names of the calls so far: "cuMemAlloc", and functions of libraries.
  std::vector<std::string> calls() const EXCLUDES(mutex_);
  // Those that were made while the context of this device was current.
  std::vector<std::string> calls_on(int device) const EXCLUDES(mutex_);
  // Names of the functions launched so far, and of the host work.
  std::vector<std::string> launches() const EXCLUDES(mutex_);
  std::vector<std::string> problems() const EXCLUDES(mutex_);
  std::vector<std::string> live() const EXCLUDES(mutex_);
  // Makes call number `index` of calls(), counted from 0, return `result`. It
  // has no effect then, unless it destroys something.
  void FailCall(size_t index, CUresult result) EXCLUDES(mutex_);
  // The same for the next call of this name on this device.
  void FailNext(const std::string& call, int device, CUresult result)
      EXCLUDES(mutex_);
  // Adds to problems().
  void Report(const std::string& problem) EXCLUDES(mutex_);

  // Runs `work` as a library's work on a stream, with these operands open. A
  // captured stream keeps a copy of it: it must refer to nothing of the caller.
  // Events measure `time_us` for it; other work takes no time.
  CUresult RunOnHost(const std::string& name, CUstream stream,
                     std::span<const kernels::cuda::MemoryRange> reads,
                     std::span<const kernels::cuda::MemoryRange> writes,
                     const std::function<void()>& work, double time_us = 0.0)
      EXCLUDES(mutex_);

  // Whether the stream is being captured.
  bool IsCaptured(CUstream stream) EXCLUDES(mutex_);

  // Notes a library's call; returns the result that it shall fail with.
  CUresult Note(const std::string& call) EXCLUDES(mutex_);
  // The device whose context is current in this thread.
  int current_device() const EXCLUDES(mutex_);
  // Queues a rank's part in a call of several: `meet` is called now, or, if the
  // stream is captured, in each launch of the graph. It refers to nothing of
  // the caller. The last rank that comes calls RunOnStreams() for all, each of
  // whose parts is ordered by its own stream.
  CUresult Meet(const std::string& name, CUstream stream,
                const MeetFunction& meet) EXCLUDES(mutex_);
  CUresult RunOnStreams(const std::string& name,
                        std::span<const StreamPart> parts,
                        const std::function<void()>& work) EXCLUDES(mutex_);

  CUresult Init() override;
  CUresult DriverGetVersion(int* version) override;
  CUresult DeviceGetCount(int* count) override;
  CUresult DeviceGet(CUdevice* device, int index) override;
  CUresult DeviceGetName(std::string* name, CUdevice device) override;
  CUresult DeviceGetUuid(std::string* uuid, CUdevice device) override;
  CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice device) override;
  CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) override;
  CUresult DevicePrimaryCtxRelease(CUdevice device) override;
  CUresult CtxSetCurrent(CUcontext context) override;
  CUresult MemGetInfo(size_t* free_bytes, size_t* total_bytes) override;
  CUresult MemAlloc(CUdeviceptr* address, size_t size_bytes) override;
  CUresult MemFree(CUdeviceptr address) override;
  CUresult MemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size_bytes,
                           CUstream stream) override;
  CUresult MemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size_bytes,
                           CUstream stream) override;
  CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                           CUstream stream) override;
  CUresult MemHostAlloc(void** address, size_t size_bytes) override;
  CUresult MemFreeHost(void* address) override;
  CUresult StreamCreate(CUstream* stream) override;
  CUresult StreamDestroy(CUstream stream) override;
  CUresult StreamSynchronize(CUstream stream) override;
  CUresult StreamWaitEvent(CUstream stream, CUevent event) override;
  CUresult EventCreate(CUevent* event, unsigned flags) override;
  CUresult EventDestroy(CUevent event) override;
  CUresult EventRecord(CUevent event, CUstream stream) override;
  CUresult EventSynchronize(CUevent event) override;
  CUresult EventElapsedTime(float* time_ms, CUevent start,
                            CUevent end) override;
  CUresult StreamBeginCapture(CUstream stream) override;
  CUresult StreamEndCapture(CUstream stream, CUgraph* graph) override;
  CUresult GraphDestroy(CUgraph graph) override;
  CUresult GraphInstantiate(CUgraphExec* executable, CUgraph graph) override;
  CUresult GraphExecDestroy(CUgraphExec executable) override;
  CUresult GraphLaunch(CUgraphExec executable, CUstream stream) override;
  CUresult ModuleLoadData(CUmodule* module, const void* image) override;
  CUresult ModuleUnload(CUmodule module) override;
  CUresult ModuleGetFunction(CUfunction* function, CUmodule module,
                             const char* name) override;
  CUresult LaunchKernel(const kernels::cuda::KernelLaunch& launch,
                        CUstream stream) override;
  std::string DescribeError(CUresult error) override;

 private:
  using Range = kernels::cuda::MemoryRange;
  // Memory of the device, or pinned memory of the host.
  struct Allocation {
    size_t size_bytes;
    size_t mapped_bytes;
    bool is_host;
    AccessHistory history;
    // of pinned memory: what the host has not waited for
    std::vector<Access> pending;
  };
  using HostFunction = void (*)(const void* argument, int64_t count);
  struct Function {
    std::string name;
    HostFunction run;
  };
  struct Module {
    void* library;  // of dlopen; null for the own kernels
    std::map<std::string, Function> functions;
  };

  // Notes a call; returns the result it shall fail with, if any.
  std::optional<CUresult> Begin(const std::string& call,
                                bool needs_context = true) REQUIRES(mutex_);
  void Problem(const std::string& text) REQUIRES(mutex_);
  // The allocation that holds the whole range; null, with a problem, if none.
  Allocation* Find(const std::string& user,
                   const kernels::cuda::MemoryRange& range, CUdeviceptr* start)
      REQUIRES(mutex_);
  // Unmaps an allocation of the device, or of the host.
  CUresult Free(const char* call, CUdeviceptr address, bool is_host)
      REQUIRES(mutex_);
  CUresult Allocate(CUdeviceptr* address, size_t size_bytes, bool is_host)
      REQUIRES(mutex_);
  // Runs the work, or notes it if the stream is captured.
  CUresult Issue(StreamWork work, CUstream stream) REQUIRES(mutex_);
  // Runs the work as the next of the stream `number`, whose clock is `clock`.
  CUresult Execute(const StreamWork& work, uintptr_t number, Clock* clock)
      REQUIRES(mutex_);
  // Runs the work with the operands of all parts open.
  CUresult ExecuteParts(const std::string& name,
                        std::span<const StreamPart> parts,
                        const std::function<void()>& work) REQUIRES(mutex_);
  // Opens pinned memory that no copy uses any more, as this thread knows.
  void ReleaseHostMemory() REQUIRES(mutex_);
  static void Protect(CUdeviceptr address, const Allocation& allocation);
  // Adds the host's side of a copy to its operands, if that is pinned memory.
  CUresult AddHostSide(const void* host, size_t size_bytes, CUstream stream,
                       const char* call, std::vector<Range>* ranges)
      REQUIRES(mutex_);
  // Reports work on a stream that is not captured while this thread captures.
  void CheckNotCapturing(const std::string& name) REQUIRES(mutex_);
  // The capture that a stream takes part in, and the one that this thread has
  // begun; null for none.
  Capture* CaptureOf(CUstream stream) REQUIRES(mutex_);
  Capture* OwnCapture() REQUIRES(mutex_);
  Clock& HostClock() REQUIRES(mutex_) {
    return host_clocks_[options_.host_threads_are_ordered
                            ? std::thread::id()
                            : std::this_thread::get_id()];
  }
  bool IsStream(const char* call, CUstream stream) REQUIRES(mutex_);
  bool IsEvent(const char* call, CUevent event) REQUIRES(mutex_);

  const FakeDriverOptions options_;
  mutable Mutex mutex_;
  struct Call {
    std::string name;
    CUcontext context;
  };
  std::vector<Call> calls_ GUARDED_BY(mutex_);
  std::vector<std::string> launches_ GUARDED_BY(mutex_);
  std::vector<std::string> problems_ GUARDED_BY(mutex_);
  std::map<size_t, CUresult> failures_ GUARDED_BY(mutex_);
  // of calls to come, by name and context
  std::map<std::pair<std::string, CUcontext>, CUresult> next_failures_
      GUARDED_BY(mutex_);
  size_t allocated_bytes_ GUARDED_BY(mutex_) = 0;
  int num_contexts_ GUARDED_BY(mutex_) = 0;
  uintptr_t next_handle_ GUARDED_BY(mutex_) = 1;
  std::map<std::thread::id, CUcontext> current_ GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Allocation> allocations_ GUARDED_BY(mutex_);
  std::map<uintptr_t, Clock> streams_ GUARDED_BY(mutex_);
  std::map<uintptr_t, Clock> events_ GUARDED_BY(mutex_);
  // time that a stream's work has taken, and what timed events have seen of it
  std::map<uintptr_t, double> stream_times_us_ GUARDED_BY(mutex_);
  std::map<uintptr_t, std::optional<double>> event_times_us_ GUARDED_BY(mutex_);
  // by the stream on which each was begun
  std::map<uintptr_t, Capture> captures_ GUARDED_BY(mutex_);
  // what marks a place in a capture, and no work that has run
  std::set<uintptr_t> captured_events_ GUARDED_BY(mutex_);
  std::map<uintptr_t, CapturedGraph> graphs_ GUARDED_BY(mutex_);
  std::map<uintptr_t, ExecutableGraph> executables_ GUARDED_BY(mutex_);
  std::map<uintptr_t, Module> modules_ GUARDED_BY(mutex_);
  // what each thread of the host knows to be done
  std::map<std::thread::id, Clock> host_clocks_ GUARDED_BY(mutex_);
};

}  // namespace replicant::testing
