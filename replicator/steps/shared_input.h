#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "replicator/replicator.h"
#include "replicator/steps/processes.h"

namespace replicant::replicator {

// The replicas of a process: `count` of `total`, from `first` on.
struct LocalReplicas {
  int first = 0;
  int count = 1;
  int total = 1;
};

// The pipelines of a process, whose batches are cut into the replicas' rows. A
// batch stays until it is used, so that processes may decide to wait.
class SharedInput : public Input {
 public:
  // All processes make it; throws what `input_fn` throws, and InvalidArgument
  // for a tensor whose rows cannot be divided among the replicas.
  SharedInput(const Replicator* owner, Processes* processes,
              const LocalReplicas& replicas, const InputFn& input_fn,
              InputMode mode);

  const Replicator* owner() const { return owner_; }
  // The tensors of one replica's batch.
  const std::vector<InputSpec>& specs() const { return specs_; }

  // Waits for this process's part of the next batch. Rethrows an exception that
  // FetchAhead() has kept.
  NextResult Fetch(Clock::TimePoint deadline);
  // Called when all processes have fetched: broadcasts a batch that only one
  // process has, and lets the next Fetch() get another batch.
  void Use();
  // Keeps a copy of the batch that was used last, by the caller's number;
  // Recall() makes it the current one again.
  void Keep(size_t number);
  void Recall(size_t number);
  // Copies the rows of a replica of this process.
  void CopyTo(int local_replica,
              std::span<const MutableTensorView> batch) const {
    CopyRows(local_replica, batch, &Feed::batch);
  }

  // Another step is built on the input.
  void AddStep() { ++num_steps_; }
  void RemoveStep() { --num_steps_; }
  // While a step computes: takes the next batch, if it is there, into memory of
  // its own. Returns whether replicas may copy their rows of it with
  // CopyAheadTo(); they hold batch number() + 1.
  bool FetchAhead() noexcept;
  void CopyAheadTo(int local_replica,
                   std::span<const MutableTensorView> batch) const {
    CopyRows(local_replica, batch, &Feed::ahead);
  }
  // Number of the current batch: counts calls of Use().
  int64_t number() const { return number_; }

 private:
  struct Feed {
    // null where another process has it
    std::unique_ptr<InputPipeline> pipeline;
    int first_replica = 0;
    int num_replicas = 1;
    std::vector<HostTensor> batch;
    std::vector<MutableTensorView> views;  // of `batch`
    bool is_filled = false;
    // what FetchAhead() has taken
    std::vector<HostTensor> ahead;
    bool is_ahead = false;
    // what Keep() has kept, by number
    std::vector<std::vector<HostTensor>> kept;
  };

  void AddFeed(const InputFn& input_fn, const InputContext& context,
               int first_replica);
  void TakeSpecs(const std::vector<InputSpec>& specs, Feed* feed);
  void CopyRows(int local_replica, std::span<const MutableTensorView> batch,
                std::vector<HostTensor> Feed::*tensors) const;

  const Replicator* owner_;
  Processes& processes_;
  const LocalReplicas replicas_;
  const bool is_broadcast_;
  std::vector<InputSpec> specs_;
  std::vector<Feed> feeds_;
  int num_steps_ = 0;  // that exist
  int64_t number_ = 0;
  std::exception_ptr error_ahead_;
};

}  // namespace replicant::replicator
