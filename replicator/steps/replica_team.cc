#include "replicator/steps/replica_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace replicant::replicator {

std::vector<CpuSet> CoreGroups(const CpuSet& cpus, int num_groups) {
  const auto count = static_cast<int64_t>(cpus.size());
  std::vector<CpuSet> groups;
  for (int64_t i = 0; i < num_groups; ++i) {
    int64_t begin = count * i / num_groups;
    int64_t end = count * (i + 1) / num_groups;
    if (count < num_groups) {
      begin = i % std::max<int64_t>(count, 1);
      end = std::min(count, begin + 1);
    }
    groups.emplace_back(std::vector<int>(cpus.cpus().begin() + begin,
                                         cpus.cpus().begin() + end));
  }
  return groups;
}

// Where a thread cannot be started the destructor ends the others, as the
// delegated constructor has completed.
ReplicaTeam::ReplicaTeam(int size) : ReplicaTeam() {
  size_ = size;
  if (size == 1) return;
  const std::vector<CpuSet> groups = CoreGroups(CpuSet::OfThisThread(), size);
  for (int i = 0; i < size; ++i) {
    threads_.push_back(std::make_unique<Thread>(
        fmt::format("replica-{}", i), groups[static_cast<size_t>(i)],
        [this, i](const Thread::StopToken&) { Serve(i); }));
  }
}

ReplicaTeam::~ReplicaTeam() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  threads_.clear();
}

void ReplicaTeam::Run(const Work& work, const EndOthers& end_others) {
  const Job job{work, end_others};
  if (size_ == 1) Do(job, 0);
  const MutexLock lock(mutex_);
  if (size_ > 1) {
    job_ = &job;
    num_busy_ = size_;
    ++round_;
    changed_.NotifyAll();
    while (num_busy_ > 0) changed_.Wait(mutex_);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ReplicaTeam::Serve(int member) {
  uint64_t round = 0;
  const MutexLock lock(mutex_);
  while (true) {
    while (round_ == round && !is_stopped_) changed_.Wait(mutex_);
    if (is_stopped_) return;
    round = round_;
    const Job& job = *job_;
    mutex_.Unlock();
    Do(job, member);
    mutex_.Lock();
    if (--num_busy_ == 0) changed_.NotifyAll();
  }
}

void ReplicaTeam::Do(const Job& job, int member) {
  try {
    job.work(member);
  } catch (const std::exception& e) {
    {
      // recorded before the others fail because of it
      const MutexLock lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (job.end_others) job.end_others(member, e);
  }
}

}  // namespace replicant::replicator
