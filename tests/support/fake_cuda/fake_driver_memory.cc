// Memory of FakeDriver, and work that uses it.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/fake_driver_parts.h"

namespace replicant::testing {

using kernels::cuda::MemoryRange;

CUresult FakeDriver::Allocate(CUdeviceptr* address, size_t size_bytes,
                              bool is_host) {
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (size_bytes + page - 1) / page * page;
  void* pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REPLICANT_CHECK(pages != MAP_FAILED, "mmap of {} bytes", mapped);
  // NaN, as f32 and as bf16, to whoever reads what nobody wrote
  std::memset(pages, 0xFF, mapped);
  if (!is_host) {
    REPLICANT_CHECK_EQ(mprotect(pages, mapped, PROT_NONE), 0);
    ASAN_POISON_MEMORY_REGION(pages, mapped);
  }
  *address = reinterpret_cast<CUdeviceptr>(pages);
  allocations_[*address] = {.size_bytes = size_bytes,
                            .mapped_bytes = mapped,
                            .is_host = is_host,
                            .history = {},
                            .pending = {}};
  return CUDA_SUCCESS;
}

CUresult FakeDriver::Free(const char* call, CUdeviceptr address, bool is_host) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.is_host != is_host) {
    Problem(fmt::format("{}: not an allocation", call));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!found->second.pending.empty()) {
    Problem(fmt::format("{}: {} may still use it", call,
                        found->second.pending[0].name));
  }
  ASAN_UNPOISON_MEMORY_REGION(PointerTo(address), found->second.mapped_bytes);
  munmap(PointerTo(address), found->second.mapped_bytes);
  if (!is_host) allocated_bytes_ -= found->second.size_bytes;
  allocations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::MemAlloc(CUdeviceptr* address, size_t size_bytes) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemAlloc")) return *failure;
  if (size_bytes > options_.memory_size_bytes - allocated_bytes_) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = Allocate(address, size_bytes, /*is_host=*/false);
  if (result == CUDA_SUCCESS) allocated_bytes_ += size_bytes;
  return result;
}

CUresult FakeDriver::MemFree(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuMemFree");
  const CUresult result = Free("cuMemFree", address, /*is_host=*/false);
  return failure.value_or(result);
}

CUresult FakeDriver::MemHostAlloc(void** address, size_t size_bytes) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemHostAlloc")) return *failure;
  CUdeviceptr pages = 0;
  const CUresult result = Allocate(&pages, size_bytes, /*is_host=*/true);
  *address = PointerTo(pages);
  return result;
}

CUresult FakeDriver::MemFreeHost(void* address) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuMemFreeHost");
  const CUresult result =
      Free("cuMemFreeHost", NumberOf(address), /*is_host=*/true);
  return failure.value_or(result);
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

void FakeDriver::Protect(CUdeviceptr address, const Allocation& allocation) {
  int protection = PROT_NONE;
  if (allocation.is_host) {
    const bool is_written = std::ranges::any_of(
        allocation.pending, [](const Access& a) { return a.is_write; });
    if (!is_written) protection |= PROT_READ;
    if (allocation.pending.empty()) protection |= PROT_WRITE;
  } else {
    ASAN_POISON_MEMORY_REGION(PointerTo(address), allocation.mapped_bytes);
  }
  mprotect(PointerTo(address), allocation.mapped_bytes, protection);
}

void FakeDriver::ReleaseHostMemory() {
  const Clock& host = HostClock();
  for (auto& [address, allocation] : allocations_) {
    if (allocation.pending.empty()) continue;
    std::erase_if(allocation.pending, [&](const Access& access) {
      return host.Has(access.stream, access.tick);
    });
    Protect(address, allocation);
  }
}

CUresult FakeDriver::Execute(const StreamWork& work, uintptr_t number,
                             Clock* clock) {
  if (work.module != 0 && !modules_.contains(work.module)) {
    Problem(fmt::format("{}: its module was unloaded", work.name));
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!work.is_copy) launches_.push_back(work.name);
  const uint64_t tick = clock->Advance(number);
  std::map<CUdeviceptr, Allocation*> touched;
  const auto note = [&](const MemoryRange& range,
                        bool is_write) REQUIRES(mutex_) {
    CUdeviceptr start = 0;
    Allocation* allocation = Find(work.name, range, &start);
    if (allocation == nullptr) return false;
    touched[start] = allocation;
    const size_t begin = range.address - start;
    const Access access{.begin = begin,
                        .end = begin + range.size_bytes,
                        .is_write = is_write,
                        .stream = number,
                        .tick = tick,
                        .name = work.name};
    const auto conflict = allocation->history.Add(access, *clock);
    if (conflict) {
      Problem(fmt::format("{} {} what {} {} on another stream, without order",
                          work.name, is_write ? "writes" : "reads",
                          conflict->name,
                          conflict->is_write ? "writes" : "reads"));
    }
    if (allocation->is_host) allocation->pending.push_back(access);
    return true;
  };
  for (const MemoryRange& range : work.reads) {
    if (!note(range, false)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (const MemoryRange& range : work.writes) {
    if (!note(range, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (const auto& [start, allocation] : touched) {
    mprotect(PointerTo(start), allocation->mapped_bytes,
             PROT_READ | PROT_WRITE);
  }
  for (const auto& ranges : {work.reads, work.writes}) {
    for (const MemoryRange& range : ranges) {
      ASAN_UNPOISON_MEMORY_REGION(PointerTo(range.address), range.size_bytes);
    }
  }
  work.run();
  stream_times_us_[number] += work.time_us;
  for (const auto& [start, allocation] : touched) Protect(start, *allocation);
  return CUDA_SUCCESS;
}

void FakeDriver::CheckNotCapturing(const std::string& name) {
  if (OwnCapture() == nullptr) return;
  Problem(fmt::format("{}: on a stream outside of the capture", name));
}

CUresult FakeDriver::Issue(StreamWork work, CUstream stream) {
  if (!IsStream(work.name.c_str(), stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (Capture* const capture = CaptureOf(stream)) {
    if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->graph.operations.push_back({.kind = GraphOperation::Kind::kWork,
                                         .stream = NumberOf(stream),
                                         .work = std::move(work)});
    return CUDA_SUCCESS;
  }
  CheckNotCapturing(work.name);
  Clock& clock = streams_[NumberOf(stream)];
  // work is ordered after what the thread that issues it has waited for
  clock.Join(HostClock());
  return Execute(work, NumberOf(stream), &clock);
}

CUresult FakeDriver::RunOnHost(const std::string& name, CUstream stream,
                               std::span<const MemoryRange> reads,
                               std::span<const MemoryRange> writes,
                               const std::function<void()>& work,
                               double time_us) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin(name)) return *failure;
  return Issue({.name = name,
                .reads = {reads.begin(), reads.end()},
                .writes = {writes.begin(), writes.end()},
                .run = work,
                .time_us = time_us},
               stream);
}

CUresult FakeDriver::Meet(const std::string& name, CUstream stream,
                          const MeetFunction& meet) {
  {
    const MutexLock lock(mutex_);
    if (const auto failure = Begin(name)) return *failure;
    if (!IsStream(name.c_str(), stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (Capture* const capture = CaptureOf(stream)) {
      if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      capture->graph.operations.push_back({.kind = GraphOperation::Kind::kMeet,
                                           .stream = NumberOf(stream),
                                           .meet = meet});
      return CUDA_SUCCESS;
    }
    CheckNotCapturing(name);
    streams_[NumberOf(stream)].Join(HostClock());
  }
  return meet({.number = NumberOf(stream)});
}

CUresult FakeDriver::RunOnStreams(const std::string& name,
                                  std::span<const StreamPart> parts,
                                  const std::function<void()>& work) {
  const MutexLock lock(mutex_);
  return ExecuteParts(name, parts, work);
}

CUresult FakeDriver::ExecuteParts(const std::string& name,
                                  std::span<const StreamPart> parts,
                                  const std::function<void()>& work) {
  if (parts.empty()) {
    work();
    return CUDA_SUCCESS;
  }
  const StreamPart& part = parts.front();
  const uintptr_t number = part.place.number;
  Clock* clock = part.place.clock;
  if (clock == nullptr) {
    if (!IsStream(name.c_str(), HandleOf<CUstream>(number))) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    clock = &streams_[number];
  }
  CUresult of_others = CUDA_SUCCESS;
  const CUresult result =
      Execute({.name = name,
               .reads = part.reads,
               .writes = part.writes,
               .run =
                   [&]() REQUIRES(mutex_) {
                     of_others = ExecuteParts(name, parts.subspan(1), work);
                   }},
              number, clock);
  return result == CUDA_SUCCESS ? of_others : result;
}

CUresult FakeDriver::AddHostSide(const void* host, size_t size_bytes,
                                 CUstream stream, const char* call,
                                 std::vector<MemoryRange>* ranges) {
  const CUdeviceptr address = NumberOf(host);
  const auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin()) {
    const auto& [start, allocation] = *std::prev(after);
    if (allocation.is_host && address < start + allocation.size_bytes) {
      ranges->push_back({address, size_bytes});
      return CUDA_SUCCESS;
    }
  }
  Capture* const capture = CaptureOf(stream);
  if (capture == nullptr) return CUDA_SUCCESS;
  capture->is_invalid = true;
  Problem(
      fmt::format("{}: memory of the host that is not pinned, within a "
                  "capture",
                  call));
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult FakeDriver::MemcpyHtoDAsync(CUdeviceptr to, const void* from,
                                     size_t size_bytes, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemcpyHtoDAsync")) return *failure;
  StreamWork work{.name = "cuMemcpyHtoDAsync",
                  .reads = {},
                  .writes = {{to, size_bytes}},
                  .run = [=] { std::memcpy(PointerTo(to), from, size_bytes); },
                  .is_copy = true};
  const CUresult result =
      AddHostSide(from, size_bytes, stream, "cuMemcpyHtoDAsync", &work.reads);
  return result == CUDA_SUCCESS ? Issue(std::move(work), stream) : result;
}

CUresult FakeDriver::MemcpyDtoHAsync(void* to, CUdeviceptr from,
                                     size_t size_bytes, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemcpyDtoHAsync")) return *failure;
  StreamWork work{.name = "cuMemcpyDtoHAsync",
                  .reads = {{from, size_bytes}},
                  .writes = {},
                  .run = [=] { std::memcpy(to, PointerTo(from), size_bytes); },
                  .is_copy = true};
  const CUresult result =
      AddHostSide(to, size_bytes, stream, "cuMemcpyDtoHAsync", &work.writes);
  return result == CUDA_SUCCESS ? Issue(std::move(work), stream) : result;
}

CUresult FakeDriver::MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from,
                                     size_t size_bytes, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuMemcpyDtoDAsync")) return *failure;
  return Issue(
      {.name = "cuMemcpyDtoDAsync",
       .reads = {{from, size_bytes}},
       .writes = {{to, size_bytes}},
       .run = [=] { std::memcpy(PointerTo(to), PointerTo(from), size_bytes); },
       .is_copy = true},
      stream);
}

}  // namespace replicant::testing
