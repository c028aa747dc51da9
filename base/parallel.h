#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace replicant {

// Loops on the team of OpenMP threads. A target that includes this header links
// OpenMP::OpenMP_CXX.

// Waking the team costs about as much as this many simple operations on
// elements; smaller work stays on the launching thread.
inline constexpr int64_t kParallelWork = 32 * 1024;

// Threads for `work` operations on elements.
inline int ThreadsFor(int num_threads, int64_t work) {
  return work < kParallelWork ? 1 : num_threads;
}

// Calls run(thread, begin, end) for contiguous parts of [0, count), one per
// thread of the team; a part may be empty. The parts depend on the arguments
// only. `run` does not throw.
template <typename Run>
void ParallelFor(int num_threads, int64_t count, const Run& run) {
  if (num_threads == 1 || count <= 1) {
    run(0, int64_t{0}, count);
    return;
  }
#ifdef __SANITIZE_THREAD__
  // the sanitizer does not see libgomp's barriers: the same parts, one by one
  for (int64_t thread = 0; thread < num_threads; ++thread) {
    run(static_cast<int>(thread), count * thread / num_threads,
        count * (thread + 1) / num_threads);
  }
#else
#pragma omp parallel num_threads(num_threads)
  {
    const int64_t thread = omp_get_thread_num();
    // the team may be smaller than was asked for
    const int64_t team = omp_get_num_threads();
    run(static_cast<int>(thread), count * thread / team,
        count * (thread + 1) / team);
  }
#endif
}

// Calls run(thread, i) for every i of [0, count), each on the first free thread
// of the team. The choice of thread, and with it of scratch memory, must not
// change a result. `run` does not throw.
template <typename Run>
void ParallelForEach(int num_threads, int64_t count, const Run& run) {
#ifdef __SANITIZE_THREAD__
  // as above
  num_threads = 1;
#endif
  if (num_threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) run(0, i);
    return;
  }
#pragma omp parallel for schedule(dynamic) num_threads(num_threads)
  for (int64_t i = 0; i < count; ++i) run(omp_get_thread_num(), i);
}

}  // namespace replicant
