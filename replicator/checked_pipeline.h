#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "replicator/input.h"

namespace replicant::replicator {

// Checks each batch of a pipeline before a step uses it
// (runtime::CheckBatchTensor): a NaN reward or an invalid class label ends the
// run at its batch instead of giving a wrong loss. Bytes, such as pixels, are
// not checked.
//
// Thread-safety: as the inner pipeline.
class CheckedPipeline : public InputPipeline {
 public:
  explicit CheckedPipeline(std::unique_ptr<InputPipeline> inner)
      : inner_(std::move(inner)) {}

  const std::vector<InputSpec>& specs() const override {
    return inner_->specs();
  }
  // Throws what the inner pipeline throws, and runtime::NumericError, which
  // counts this process's batches from 0.
  NextResult Next(Clock::TimePoint deadline,
                  std::span<const MutableTensorView> batch) override {
    return Check(inner_->Next(deadline, batch), batch);
  }
  NextResult NextAhead(Clock::TimePoint deadline,
                       std::span<const MutableTensorView> batch) override {
    return Check(inner_->NextAhead(deadline, batch), batch);
  }
  void UseAhead() override { inner_->UseAhead(); }

 private:
  NextResult Check(NextResult result, std::span<const MutableTensorView> batch);

  const std::unique_ptr<InputPipeline> inner_;
  int64_t num_batches_ = 0;
};

}  // namespace replicant::replicator
