#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/replicator/input.h"

namespace replicant::replicator {

// A pipeline whose batches are looked through before a step uses them
// (runtime::CheckBatchTensor): a NaN reward or a label that is no class ends
// the run at its batch, not as a wrong loss. Bytes, such as pixels, are left
// alone.
//
// Thread-safety: as the pipeline inside.
class CheckedPipeline : public InputPipeline {
 public:
  explicit CheckedPipeline(std::unique_ptr<InputPipeline> inner)
      : inner_(std::move(inner)) {}

  const std::vector<InputSpec>& specs() const override {
    return inner_->specs();
  }
  // Throws what the pipeline inside throws, and runtime::NumericError. Batches
  // are counted from 0, in this process.
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
