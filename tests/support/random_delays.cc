// Preloaded into the programs of the tests (scripts/checks/shake_tests): delays
// locks and system calls at random, so that threads and processes meet in
// orders that an idle machine never shows.
//
// One call in a hundred takes up to 3 ms longer, one in 3000 begins a burst in
// which each call of the thread takes up to 20 ms longer, and every third
// thread is slow in its first hundreds of calls. Programs outside the folder
// RANDOM_DELAYS_FOLDER run unchanged.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

// Whether to delay this program: 0 not known yet, 1 yes, 2 no.
std::atomic<int> is_delayed = 0;

bool IsDelayed() {
  int state = is_delayed.load(std::memory_order_relaxed);
  if (state == 0) {
    const char* folder = std::getenv("RANDOM_DELAYS_FOLDER");  // NOLINT
    std::array<char, 4096> program{};
    const auto size =
        ::readlink("/proc/self/exe", program.data(), program.size() - 1);
    const bool is_inside =
        folder != nullptr && size > 0 &&
        std::strncmp(program.data(), folder, std::strlen(folder)) == 0;
    state = is_inside ? 1 : 2;
    is_delayed.store(state, std::memory_order_relaxed);
  }
  return state == 1;
}

// Random numbers of one thread: xorshift64, seeded by the time and the thread.
struct Delays {
  uint64_t Next() {
    if (state == 0) {
      std::timespec now{};
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      state = static_cast<uint64_t>(now.tv_nsec) * 0x9e3779b97f4a7c15U ^
              reinterpret_cast<uintptr_t>(this) ^ 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }

  long NextMicroseconds() {
    if (!is_begun) {
      is_begun = true;
      if (Next() % 3 == 0) StartBurst(100 + Next() % 300, 4000);
    }
    if (num_slow_calls > 0) {
      --num_slow_calls;
      return static_cast<long>(Next() % most_us);
    }
    if (Next() % 3000 == 0) StartBurst(5 + Next() % 20, 20'000);
    return Next() % 100 == 0 ? static_cast<long>(Next() % 3000) : 0;
  }

  void StartBurst(uint64_t num_calls, uint64_t us) {
    num_slow_calls = num_calls;
    most_us = us;
  }

  uint64_t state;
  bool is_begun;
  uint64_t num_slow_calls;
  uint64_t most_us;
};
thread_local Delays delays{};

void Delay() {
  if (!IsDelayed()) return;
  const long us = delays.NextMicroseconds();
  if (us == 0) return;
  const std::timespec time{.tv_sec = 0, .tv_nsec = us * 1000};
  ::nanosleep(&time, nullptr);
}

// The function that this one stands before.
template <typename Function>
Function Next(std::atomic<Function>& known, const char* name) {
  Function function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*)> next;
  Delay();
  return Next(next, "pthread_mutex_lock")(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*)> next;
  const int result = Next(next, "pthread_mutex_unlock")(mutex);
  Delay();
  return result;
}

ssize_t send(int socket, const void* data, size_t size, int flags) {
  static std::atomic<ssize_t (*)(int, const void*, size_t, int)> next;
  Delay();
  return Next(next, "send")(socket, data, size, flags);
}

ssize_t recv(int socket, void* data, size_t size, int flags) {
  static std::atomic<ssize_t (*)(int, void*, size_t, int)> next;
  const ssize_t result = Next(next, "recv")(socket, data, size, flags);
  Delay();
  return result;
}

ssize_t write(int file, const void* data, size_t size) {
  static std::atomic<ssize_t (*)(int, const void*, size_t)> next;
  const ssize_t result = Next(next, "write")(file, data, size);
  Delay();
  return result;
}

ssize_t read(int file, void* data, size_t size) {
  static std::atomic<ssize_t (*)(int, void*, size_t)> next;
  const ssize_t result = Next(next, "read")(file, data, size);
  Delay();
  return result;
}

int poll(pollfd* files, nfds_t count, int timeout_ms) {
  static std::atomic<int (*)(pollfd*, nfds_t, int)> next;
  const int result = Next(next, "poll")(files, count, timeout_ms);
  Delay();
  return result;
}

int epoll_wait(int file, epoll_event* events, int count, int timeout_ms) {
  static std::atomic<int (*)(int, epoll_event*, int, int)> next;
  const int result = Next(next, "epoll_wait")(file, events, count, timeout_ms);
  Delay();
  return result;
}

}  // extern "C"
