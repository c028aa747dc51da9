#include "replay/checkpoint/checkpoint_saver.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

namespace replicant::replay {

CheckpointSaver::CheckpointSaver(Shard* shard, Checkpointer* checkpointer)
    : shard_(shard),
      checkpointer_(checkpointer),
      thread_("checkpoints", [this](const Thread::StopToken&) { Run(); }) {}

bool CheckpointSaver::Start(uint64_t id, Done done) {
  // held while the snapshot is taken, so that snapshots queue in their order
  MutexLock lock(mutex_);
  if (is_finished_ || jobs_.size() >= kMaxWaiting) return false;
  jobs_.push_back({shard_->TakeSnapshot(), id, std::move(done)});
  changed_.NotifyAll();
  return true;
}

void CheckpointSaver::Finish() {
  {
    MutexLock lock(mutex_);
    is_finished_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

CheckpointStatus CheckpointSaver::Status() const {
  MutexLock lock(mutex_);
  CheckpointStatus status = {.last_number = checkpointer_->last_number(),
                             .age_s = std::nullopt,
                             .failures = failures_,
                             .last_problem = last_problem_};
  if (last_save_) status.age_s = ToSeconds(Clock::Real().Now() - *last_save_);
  return status;
}

std::string CheckpointSaver::Save(const Job& job) {
  try {
    const uint64_t number = checkpointer_->Save(job.snapshot, job.id);
    spdlog::info("saved checkpoint {}{}", number,
                 job.id == 0 ? "" : " of id " + std::to_string(job.id));
    return "";
  } catch (const std::exception& e) {
    // the service continues: the previous checkpoint is still there
    spdlog::error("checkpoint: {}", e.what());
    return e.what();
  }
}

void CheckpointSaver::Run() {
  while (true) {
    Job job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !is_finished_) changed_.Wait(mutex_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const std::string problem = Save(job);
    {
      MutexLock lock(mutex_);
      last_problem_ = problem;
      if (problem.empty()) {
        last_save_ = Clock::Real().Now();
      } else {
        ++failures_;
      }
    }
    if (job.done) job.done(problem);
  }
}

}  // namespace replicant::replay
