#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace replicant {

// A set of processor numbers, as the operating system counts them.
class CpuSet {
 public:
  // The empty set, which stands for "no restriction".
  CpuSet() = default;
  // Throws InvalidArgument for a negative number or one above 1023.
  explicit CpuSet(std::vector<int> cpus);

  // Reads the form of taskset and Slurm: "0-3,8". Throws InvalidArgument.
  static CpuSet Parse(std::string_view text);
  // The processors that the calling thread may run on.
  static CpuSet OfThisThread();

  // Ascending, without repetition.
  const std::vector<int>& cpus() const { return cpus_; }
  bool empty() const { return cpus_.empty(); }
  int size() const { return static_cast<int>(cpus_.size()); }
  // "0-3,8"; "" if empty.
  std::string ToString() const;

  bool operator==(const CpuSet&) const = default;

 private:
  std::vector<int> cpus_;
};

// Restricts the calling thread, and every thread that it starts later, to
// `cpus`; no effect if empty. Throws InvalidArgument if this process may run on
// none of them.
void SetThreadAffinity(const CpuSet& cpus);

// The name under which top, gdb and perf show the calling thread; the kernel
// keeps its first 15 bytes.
void SetThreadName(const std::string& name);
std::string ThreadName();

// A named thread, restricted to some processors, that is always joined.
//
// The function receives a stop token and must return soon after
// token.IsStopRequested() turns true. Join() rethrows an exception of the
// function. The destructor requests a stop and joins; it logs an exception that
// no Join() has rethrown as an error.
//
// Thread-safety: the methods are for one owner, IsRunning() and the token for
// any thread.
class Thread {
 public:
  class StopToken {
   public:
    bool IsStopRequested() const {
      return is_stop_requested_.load(std::memory_order_acquire);
    }

   private:
    friend class Thread;
    std::atomic<bool> is_stop_requested_{false};
  };
  using Function = std::function<void(const StopToken&)>;

  // Throws InvalidArgument if the process may run on none of `cpus`; nothing
  // runs then.
  Thread(std::string name, const CpuSet& cpus, Function function);
  Thread(std::string name, Function function);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // Whether the function still runs; once it does not, Join() returns or throws
  // at once.
  bool IsRunning() const { return !has_ended_.load(std::memory_order_acquire); }

  void RequestStop();
  // Waits for the end and throws what the function threw. A second call
  // returns at once.
  void Join();

  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  StopToken token_;
  std::atomic<bool> has_ended_{false};
  // written by the thread before it ends, read after the join
  std::exception_ptr exception_;
  std::thread thread_;
};

}  // namespace replicant
