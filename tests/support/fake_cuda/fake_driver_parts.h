#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#endif

// Declarations shared by the source files of FakeDriver.
namespace replicant::testing {

inline uintptr_t NumberOf(const void* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

// Handles are numbers, so that a use of one as an address is seen.
template <typename Handle>
Handle HandleOf(uintptr_t number) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<Handle>(number);
}

}  // namespace replicant::testing
