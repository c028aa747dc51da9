#include "base/racy_memory.h"

#if defined(__SANITIZE_THREAD__)
#define REPLICANT_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REPLICANT_THREAD_SANITIZER 1
#endif
#endif

#ifdef REPLICANT_THREAD_SANITIZER
// of the sanitizer's runtime, which has no header for it
extern "C" void AnnotateBenignRaceSized(const char* file, int line,
                                        const volatile void* memory,
                                        size_t size_bytes,
                                        const char* description);
#endif

namespace replicant {

void ExpectRacesOn([[maybe_unused]] const void* memory,
                   [[maybe_unused]] size_t size_bytes,
                   [[maybe_unused]] const char* why) {
#ifdef REPLICANT_THREAD_SANITIZER
  AnnotateBenignRaceSized(__FILE__, __LINE__, memory, size_bytes, why);
#endif
}

}  // namespace replicant
