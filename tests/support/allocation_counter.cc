#include "tests/support/allocation_counter.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

namespace {

std::atomic<int64_t> num_own_allocations = 0;
std::atomic<int64_t> num_library_allocations = 0;
std::atomic<bool> is_counting = false;

// Whether the address lies in the library of oneDNN.
bool IsInOneDnn(void* address) {
  Dl_info info;
  return ::dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libdnnl") !=
             std::string_view::npos;
}

void* Allocate(size_t size, size_t alignment, void* caller) {
  if (is_counting) {
    ++(IsInOneDnn(caller) ? num_library_allocations : num_own_allocations);
  }
  // aligned_alloc wants whole multiples
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded);
}

void* AllocateOrThrow(size_t size, size_t alignment, void* caller) {
  void* memory = Allocate(size, alignment, caller);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All that are not forwarded to one of these, so that none is counted by the
// library and freed here. Not inlined: the return address says who asked, and
// g++ warns where free() meets operator new.
[[gnu::noinline]] void* operator new(size_t size) {
  return AllocateOrThrow(size, 16, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t& /*tag*/) noexcept {
  return Allocate(size, 16, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<size_t>(alignment),
                         __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(
    void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(
    void* memory, size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace replicant::testing {

AllocationCounts CountAllocations(const std::function<void()>& work) {
  num_own_allocations = 0;
  num_library_allocations = 0;
  is_counting = true;
  work();
  is_counting = false;
  return {.own = num_own_allocations, .library = num_library_allocations};
}

}  // namespace replicant::testing
