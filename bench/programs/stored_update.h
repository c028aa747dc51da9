#pragma once

#include <cstdint>
#include <memory>

#include "bench/programs/service_process.h"
#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "learner/workloads/agent/agent_workload.h"
#include "replay/client/batch_reader.h"
#include "replicator/replication_config.h"
#include "tools/probe/d4pg_step.h"

namespace replicant::learner {

// The whole update of a learner from pixels that keeps all frames of its replay
// (learner.frame_store), as programs/learner makes it: the batch is drawn by a
// service in another process, the reader and the input name its frames, the
// step gathers them, and the priorities go back.
class StoredUpdate {
 public:
  struct Options {
    replicator::ReplicationConfig replication;  // one replica
    graph::Precision precision = graph::Precision::kF32;
    int64_t num_frames = 10'000;  // of the replay
  };

  // Fills the replay and makes updates until the learner has all frames. No
  // thread of this process should run (ServiceProcess). Throws CommError if
  // frames still travel after many updates, and what the workload throws.
  StoredUpdate(
      const probe::d4pg::StepGraphConfig& config, const Options& options,
      const kernels::BackendFactory& make_backend = kernels::MakeBackend);

  void Run();

  // Time that all updates so far have waited for batches, seconds.
  double wait_seconds() const { return workload_->WaitSeconds(); }
  // Frames sent to the device so far; 0 on the CPU.
  int64_t num_sent() const;

 private:
  void Fill(int64_t num_frames) const;
  // Makes updates until no frame travels.
  void WarmUp(int64_t num_frames);

  const agents::LearningSpec spec_;
  const int64_t batch_size_;
  const replay::ServiceProcess service_;
  std::unique_ptr<replay::BatchReader> reader_;
  std::unique_ptr<AgentWorkload> workload_;
};

}  // namespace replicant::learner
