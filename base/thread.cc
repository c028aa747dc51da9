#include "base/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant {
namespace {

[[noreturn]] void ThrowBadList(std::string_view text) {
  throw InvalidArgument(
      fmt::format("CPU list '{}': expected numbers and ascending ranges below "
                  "{}, such as 0-3,8",
                  text, CPU_SETSIZE));
}

// Reads a processor number off the front of `*rest`, a part of `text`.
int TakeNumber(std::string_view text, std::string_view* rest) {
  int number = 0;
  const char* end = rest->data() + rest->size();
  const auto [stop, error] = std::from_chars(rest->data(), end, number);
  if (error != std::errc() || number < 0 || number >= CPU_SETSIZE) {
    ThrowBadList(text);
  }
  rest->remove_prefix(static_cast<size_t>(stop - rest->data()));
  return number;
}

bool TakePrefix(char c, std::string_view* text) {
  if (!text->starts_with(c)) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

CpuSet::CpuSet(std::vector<int> cpus) : cpus_(std::move(cpus)) {
  for (const int cpu : cpus_) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
      throw InvalidArgument(fmt::format(
          "CpuSet: processors must be in [0, {}), got {}", CPU_SETSIZE, cpu));
    }
  }
  std::sort(cpus_.begin(), cpus_.end());
  cpus_.erase(std::unique(cpus_.begin(), cpus_.end()), cpus_.end());
}

CpuSet CpuSet::Parse(std::string_view text) {
  std::vector<int> cpus;
  std::string_view rest = text;
  do {
    const int first = TakeNumber(text, &rest);
    const int last = TakePrefix('-', &rest) ? TakeNumber(text, &rest) : first;
    if (last < first) ThrowBadList(text);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  } while (TakePrefix(',', &rest));
  if (!rest.empty()) ThrowBadList(text);
  return CpuSet(std::move(cpus));
}

CpuSet CpuSet::OfThisThread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int error = pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
  REPLICANT_CHECK(error == 0, "pthread_getaffinity_np: error {}", error);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return CpuSet(std::move(cpus));
}

std::string CpuSet::ToString() const {
  std::string text;
  for (size_t i = 0; i < cpus_.size();) {
    // [i, end) is one run of successive processors
    size_t end = i + 1;
    while (end < cpus_.size() && cpus_[end] == cpus_[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus_[i]);
    if (end - i > 1) text += '-' + std::to_string(cpus_[end - 1]);
    i = end;
  }
  return text;
}

void SetThreadAffinity(const CpuSet& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus.cpus()) CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
    throw InvalidArgument(
        fmt::format("cannot run on processors {}; this process may use {}",
                    cpus.ToString(), CpuSet::OfThisThread().ToString()));
  }
}

void SetThreadName(const std::string& name) {
  // the kernel keeps 15 bytes and a terminator
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

std::string ThreadName() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

Thread::Thread(std::string name, Function function)
    : Thread(std::move(name), CpuSet(), std::move(function)) {}

Thread::Thread(std::string name, const CpuSet& cpus, Function function)
    : name_(std::move(name)) {
  std::promise<void> is_placed;
  std::future<void> placed = is_placed.get_future();
  thread_ =
      std::thread([this, &cpus, &is_placed, function = std::move(function)] {
        SetThreadName(name_);
        try {
          SetThreadAffinity(cpus);
        } catch (...) {
          is_placed.set_exception(std::current_exception());
          return;
        }
        // `cpus` and `is_placed` are gone after this line
        is_placed.set_value();
        try {
          function(token_);
        } catch (...) {
          exception_ = std::current_exception();
        }
        has_ended_.store(true, std::memory_order_release);
      });
  try {
    placed.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

Thread::~Thread() {
  RequestStop();
  try {
    Join();
  } catch (const std::exception& e) {
    spdlog::error("thread {}: {}", name_, e.what());
  }
}

void Thread::RequestStop() {
  token_.is_stop_requested_.store(true, std::memory_order_release);
}

void Thread::Join() {
  if (!thread_.joinable()) return;
  thread_.join();
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
}

}  // namespace replicant
