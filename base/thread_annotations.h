#pragma once

// Names for clang's thread-safety analysis (checked by scripts/lint); empty
// for other compilers. See "Thread Safety Analysis" in the clang manual.
#if defined(__clang__)
#define REPLICANT_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define REPLICANT_THREAD_ATTRIBUTE(x)
#endif

#define CAPABILITY(x) REPLICANT_THREAD_ATTRIBUTE(capability(x))
#define SCOPED_CAPABILITY REPLICANT_THREAD_ATTRIBUTE(scoped_lockable)
#define GUARDED_BY(x) REPLICANT_THREAD_ATTRIBUTE(guarded_by(x))
#define PT_GUARDED_BY(x) REPLICANT_THREAD_ATTRIBUTE(pt_guarded_by(x))
#define REQUIRES(...) \
  REPLICANT_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) REPLICANT_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) REPLICANT_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define EXCLUDES(...) REPLICANT_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS \
  REPLICANT_THREAD_ATTRIBUTE(no_thread_safety_analysis)
