#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

namespace replicant {

// Loops on the calling thread and a team of threads that is its own. The team
// starts with the first loop, on the processors that the calling thread has
// then, and ends with the calling thread.
//
// A loop has more parts than threads. Each thread begins with parts of its own,
// which are the same in every loop of one size, and then helps the others: one
// that loses its processor to another program delays a part, not its share of
// the loop. Threads without work sleep after some microseconds, and so free a
// processor for one of the team that has none.
//
// The calling thread and its team ask for short turns (base/priority.h). The
// threads of a team block signals (base/blocked_signals.h) and compute with
// the floating-point settings of the calling thread. Loops are not nested
// (checked). The first exception of a part is thrown to the caller once all
// parts that have begun have ended; parts that have not begun are left out.

// Waking the team costs about as much as this many simple operations on
// elements; smaller work stays on the calling thread.
inline constexpr int64_t kParallelWork = 32 * 1024;

// Threads for `work` operations on elements.
inline int ThreadsFor(int num_threads, int64_t work) {
  return work < kParallelWork ? 1 : num_threads;
}

// The parts of a loop for each of its threads.
inline constexpr int64_t kPartsPerThread = 4;

namespace parallel_internal {

// Calls run(context, thread, part) for all parts. `num_threads` > 1.
using RunPart = void (*)(const void* context, int thread, int64_t part);
void RunParts(int num_threads, int64_t num_parts, RunPart run,
              const void* context);

}  // namespace parallel_internal

// Calls run(thread, i) for every i of [0, count), with `thread` below
// `num_threads`, for scratch memory. Which thread calls must not change a
// result.
template <typename Run>
void ParallelForEach(int num_threads, int64_t count, const Run& run) {
  if (num_threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) run(0, i);
    return;
  }
  parallel_internal::RunParts(
      num_threads, count,
      [](const void* context, int thread, int64_t i) {
        (*static_cast<const Run*>(context))(thread, i);
      },
      std::addressof(run));
}

// The parts of a ParallelFor().
inline int64_t NumParts(int num_threads, int64_t count) {
  return num_threads == 1 || count <= 1
             ? 1
             : std::min(count, kPartsPerThread * num_threads);
}

// The part that has `i` of [0, count).
inline int64_t PartOf(int num_threads, int64_t count, int64_t i) {
  return ((i + 1) * NumParts(num_threads, count) - 1) / count;
}

// Calls run(thread, part, begin, end) for contiguous parts of [0, count), which
// depend on the arguments only. No part is empty, but for `count` 0. A sum is
// by part, in [0, NumParts()), and not by thread: rounding would depend on who
// was free.
template <typename Run>
void ParallelForParts(int num_threads, int64_t count, const Run& run) {
  const int64_t parts = NumParts(num_threads, count);
  ParallelForEach(num_threads, parts, [&](int thread, int64_t part) {
    run(thread, part, count * part / parts, count * (part + 1) / parts);
  });
}

// The same for run(thread, begin, end).
template <typename Run>
void ParallelFor(int num_threads, int64_t count, const Run& run) {
  ParallelForParts(num_threads, count,
                   [&](int thread, int64_t /*part*/, int64_t begin,
                       int64_t end) { run(thread, begin, end); });
}

}  // namespace replicant
