#include "replay/service/batch_encoder.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "base/error.h"

namespace replicant::replay {

rpc::Message Encode(const EncodeJob& job) {
  return EncodeBatch(job.batch, job.state, job.shape, job.form,
                     job.max_part_bytes, job.target ? &*job.target : nullptr,
                     job.kept);
}

BatchEncoder::BatchEncoder(int64_t num_threads) {
  if (num_threads < 1 || num_threads > 64) {
    throw InvalidArgument(fmt::format(
        "batch encoder: {} threads are outside [1, 64]", num_threads));
  }
  for (int64_t i = 0; i < num_threads; ++i) {
    threads_.push_back(std::make_unique<Thread>(
        "replay-encode", [this](const Thread::StopToken& s) { Run(s); }));
  }
}

BatchEncoder::~BatchEncoder() { Stop(); }

void BatchEncoder::Start(EncodeJob job, Done done) {
  MutexLock lock(mutex_);
  jobs_.emplace_back(std::move(job), std::move(done));
  changed_.NotifyOne();
}

void BatchEncoder::Stop() {
  {
    MutexLock lock(mutex_);
    is_stopped_ = true;
    jobs_.clear();
    changed_.NotifyAll();
  }
  for (auto& thread : threads_) thread->Join();
}

void BatchEncoder::Run(const Thread::StopToken& /*stop*/) {
  while (true) {
    std::pair<EncodeJob, Done> job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !is_stopped_) changed_.Wait(mutex_);
      if (is_stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    rpc::Message message;
    std::string error;
    try {
      message = Encode(job.first);
    } catch (const std::exception& e) {
      error = e.what();
    }
    job.second(std::move(message), std::move(error));
  }
}

}  // namespace replicant::replay
