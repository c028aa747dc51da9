#include "replicator/checked_pipeline.h"

#include "engine/runtime/numeric_check.h"

namespace replicant::replicator {

NextResult CheckedPipeline::Check(NextResult result,
                                  std::span<const MutableTensorView> batch) {
  if (result != NextResult::kOk) return result;
  for (size_t i = 0; i < batch.size(); ++i) {
    const InputSpec& spec = specs()[i];
    runtime::CheckBatchTensor(num_batches_, spec.name, batch[i],
                              spec.num_classes);
  }
  ++num_batches_;
  return result;
}

}  // namespace replicant::replicator
