#include "base/parallel.h"

#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/blocked_signals.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/priority.h"

namespace replicant::parallel_internal {
namespace {

#if defined(__x86_64__)

void Pause() { _mm_pause(); }
unsigned FloatSettings() { return _mm_getcsr(); }
void SetFloatSettings(unsigned settings) { _mm_setcsr(settings); }

#else  // other processors have no settings that kernels change

void Pause() { std::this_thread::yield(); }
unsigned FloatSettings() { return 0; }
void SetFloatSettings(unsigned /*settings*/) {}

#endif

// Some microseconds, in which the next loop of a step mostly begins: shorter,
// and threads sleep between loops; longer, and they keep a processor from a
// thread of the team that has lost its own.
constexpr int kSpins = 200;

// Waits until `value` is not `old`, and returns what it is.
uint32_t AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  uint32_t now = value.load(std::memory_order_acquire);
  for (int i = 0; now == old && i < kSpins; ++i) {
    Pause();
    now = value.load(std::memory_order_acquire);
  }
  while (now == old) {
    value.wait(old, std::memory_order_acquire);
    now = value.load(std::memory_order_acquire);
  }
  return now;
}

thread_local bool is_in_loop = false;

// Two counters have cache lines of their own.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class Team {
 public:
  ~Team() { EndHelpers(); }

  void Run(int num_threads, int64_t num_parts, RunPart run,
           const void* context) {
    REPLICANT_CHECK(!is_in_loop, "a loop within a loop");
    REPLICANT_CHECK(num_parts < int64_t{1} << 32, "{} parts", num_parts);
    Grow(num_threads);
    is_in_loop = true;
    // nobody reads these before it has taken a part
    run_ = run;
    context_ = context;
    float_settings_ = FloatSettings();
    const uint32_t loop = loop_.load(std::memory_order_relaxed) + 1;
    num_threads_.store(num_threads, std::memory_order_relaxed);
    unfinished_.store(static_cast<uint32_t>(num_parts),
                      std::memory_order_relaxed);
    for (int64_t thread = 0; thread < num_threads; ++thread) {
      Share& share = shares_[static_cast<size_t>(thread)];
      const int64_t begin = num_parts * thread / num_threads;
      share.end = num_parts * (thread + 1) / num_threads;
      share.left.store(LeftOf(loop, share.end - begin),
                       std::memory_order_release);
    }
    loop_.store(loop, std::memory_order_release);
    loop_.notify_all();
    Help(0, loop);
    for (uint32_t left = unfinished_.load(std::memory_order_acquire);
         left != 0;) {
      left = AwaitChange(unfinished_, left);
    }
    is_in_loop = false;
    if (has_failed_.load(std::memory_order_relaxed)) Rethrow();
  }

 private:
  // The parts of one thread, taken one by one, by itself or by another.
  struct alignas(64) Share {
    // the loop's number and how many parts are left
    std::atomic<uint64_t> left{0};
    int64_t end = 0;
  };

  static uint64_t LeftOf(uint32_t loop, int64_t count) {
    return uint64_t{loop} << 32 | static_cast<uint64_t>(count);
  }

  void Grow(int num_threads) {
    const auto size = static_cast<size_t>(num_threads);
    if (size <= shares_.size()) return;
    // helpers that sleep or look for work read the old shares
    EndHelpers();
    // a thread that wakes for a loop must not wait for a busy program's turn
    ShortenTurns();
    ends_ = false;
    shares_ = std::vector<Share>(size);
    const uint32_t loop = loop_.load(std::memory_order_relaxed);
    for (int thread = 1; thread < num_threads; ++thread) {
      // under the name of the calling thread
      helpers_.emplace_back([this, thread, loop] { Work(thread, loop); });
    }
  }

  void EndHelpers() {
    ends_ = true;
    loop_.fetch_add(1, std::memory_order_release);
    loop_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
  }

  // A helper's life. `seen`: the newest loop before it.
  void Work(int thread, uint32_t seen) {
    BlockSignals();
    is_in_loop = true;
    for (;;) {
      seen = AwaitChange(loop_, seen);
      if (ends_) return;
      if (thread < num_threads_.load(std::memory_order_relaxed)) {
        Help(thread, seen);
      }
    }
  }

  // Takes parts of the loop until none is left, one's own first.
  void Help(int thread, uint32_t loop) {
    const int num_threads = num_threads_.load(std::memory_order_relaxed);
    for (int i = 0; i < num_threads; ++i) {
      Share& share = shares_[static_cast<size_t>((thread + i) % num_threads)];
      uint64_t left = share.left.load(std::memory_order_acquire);
      // a thread that comes late finds another loop here, or nothing left
      while (left >> 32 == loop && (left & 0xffffffff) != 0) {
        if (!share.left.compare_exchange_weak(left, left - 1,
                                              std::memory_order_acq_rel,
                                              std::memory_order_acquire)) {
          continue;
        }
        RunOne(thread, share.end - static_cast<int64_t>(left & 0xffffffff));
        left = share.left.load(std::memory_order_acquire);
      }
    }
  }

  void RunOne(int thread, int64_t part) {
    if (thread != 0 && FloatSettings() != float_settings_) {
      SetFloatSettings(float_settings_);
    }
    if (!has_failed_.load(std::memory_order_relaxed)) {
      try {
        run_(context_, thread, part);
      } catch (...) {
        const MutexLock lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        has_failed_.store(true, std::memory_order_relaxed);
      }
    }
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 &&
        thread != 0) {
      unfinished_.notify_one();
    }
  }

  [[noreturn]] void Rethrow() {
    std::exception_ptr failure;
    {
      const MutexLock lock(mutex_);
      failure = std::exchange(failure_, nullptr);
    }
    has_failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(failure);
  }

  std::vector<std::thread> helpers_;
  std::vector<Share> shares_;

  RunPart run_ = nullptr;
  const void* context_ = nullptr;
  unsigned float_settings_ = 0;
  std::atomic<int> num_threads_ = 0;
  std::atomic<bool> ends_ = false;
  std::atomic<bool> has_failed_ = false;
  Mutex mutex_;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  alignas(64) std::atomic<uint32_t> loop_ = 0;
  alignas(64) std::atomic<uint32_t> unfinished_ = 0;
};

}  // namespace

void RunParts(int num_threads, int64_t num_parts, RunPart run,
              const void* context) {
  thread_local Team team;
  team.Run(num_threads, num_parts, run, context);
}

}  // namespace replicant::parallel_internal
