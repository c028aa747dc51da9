#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"

namespace replicant::replicator {

// Divides `cpus` into `num_groups` groups of neighbours, as evenly as possible.
// With fewer processors than groups, several groups have the same processor.
std::vector<CpuSet> CoreGroups(const CpuSet& cpus, int num_groups);

// One thread with separate processors for each replica of this process. A
// replica compiles and runs everything on its thread.
//
// A team of one is the calling thread itself, which keeps its processors.
//
// Thread-safety: one thread at a time.
class ReplicaTeam {
 public:
  // Throws std::system_error if the system refuses a thread.
  explicit ReplicaTeam(int size);
  ~ReplicaTeam();

  int size() const { return size_; }

  using Work = std::function<void(int)>;
  using EndOthers = std::function<void(int, const std::exception&)>;

  // Calls work(i) for every i < size() at once and returns when all are done. A
  // call that throws runs end_others(i, e), which must end the other calls, as
  // they may wait for it. Rethrows the first exception.
  void Run(const Work& work, const EndOthers& end_others = {}) EXCLUDES(mutex_);

 private:
  struct Job {
    const Work& work;
    const EndOthers& end_others;
  };

  ReplicaTeam() = default;

  void Serve(int member) EXCLUDES(mutex_);
  // Does the member's part of a job; an exception is kept in error_.
  void Do(const Job& job, int member) EXCLUDES(mutex_);

  int size_ = 1;
  Mutex mutex_;
  CondVar changed_;
  const Job* job_ GUARDED_BY(mutex_) = nullptr;
  // counts the calls of Run()
  uint64_t round_ GUARDED_BY(mutex_) = 0;
  int num_busy_ GUARDED_BY(mutex_) = 0;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  // the first one
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace replicant::replicator
