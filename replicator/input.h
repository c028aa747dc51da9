#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "base/tensor/tensor_view.h"
#include "engine/graph/call_site.h"

namespace replicant::replicator {

// One tensor of a batch.
struct InputSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  // Class labels (i32 or i64) lie in [0, num_classes). 0: no limit.
  int64_t num_classes = 0;
};

// Returns one replica's part when `num_replicas` divide the rows of a batch.
// Throws InvalidArgument if they cannot.
InputSpec OfOneReplica(const InputSpec& spec, int num_replicas);

enum class [[nodiscard]] NextResult{
    kOk,
    kTimeout,  // no batch by the deadline; ask again
    kEnd,      // there will be no more
};

// The source of a step's batches.
//
// Thread-safety: one thread at a time.
class InputPipeline {
 public:
  virtual ~InputPipeline() = default;

  // The tensors of a batch; they never change.
  virtual const std::vector<InputSpec>& specs() const = 0;

  // Writes the next batch: batch[i] has the type of specs()[i]. The contents
  // are used only if it returns kOk. A replicator then checks that floating
  // elements are finite and class numbers in their range.
  virtual NextResult Next(Clock::TimePoint deadline,
                          std::span<const MutableTensorView> batch) = 0;

  // Next() while a step computes with the previous batch, so that the next one
  // is ready when the step ends. Anything that the pipeline reports about its
  // current batch stays the same until UseAhead(), which precedes any other
  // call that gives a batch. The default refuses with kTimeout, since batches
  // may depend on the step's results.
  virtual NextResult NextAhead(Clock::TimePoint /*deadline*/,
                               std::span<const MutableTensorView> /*batch*/) {
    return NextResult::kTimeout;
  }
  // A step begins with the batch that NextAhead() gave.
  virtual void UseAhead() {}
};

// The part of the input that a pipeline provides.
struct InputContext {
  // Number of replicas that share a batch, which form a group.
  int num_replicas = 1;
  // Index of this pipeline among the num_pipelines that share the work.
  int pipeline_id = 0;
  int num_pipelines = 1;
  // Index of the group among num_groups, which draw their own batches.
  int group_id = 0;
  int num_groups = 1;

  // The rows of one replica. Throws InvalidArgument unless the replicas divide
  // `global_batch_size` >= 1 evenly.
  int64_t PerReplicaBatchSize(
      int64_t global_batch_size,
      graph::CallSite site = graph::CallSite::Here()) const;
  // The rows of this pipeline, for all replicas that it feeds.
  int64_t PipelineBatchSize(
      int64_t global_batch_size,
      graph::CallSite site = graph::CallSite::Here()) const {
    return PerReplicaBatchSize(global_batch_size, site) *
           (num_replicas / num_pipelines);
  }
};

// The number of pipelines of a group. A pipeline that feeds several replicas
// gives the rows of all in one batch, the first replica's rows first; every
// tensor of the batch then has rows.
enum class InputMode {
  kSingle,      // one, in the first process
  kPerWorker,   // one in every process
  kPerReplica,  // one for every replica
};

using InputFn =
    std::function<std::unique_ptr<InputPipeline>(const InputContext&)>;

}  // namespace replicant::replicator
