#pragma once

#include <cstdint>

#include "replicator/input.h"

namespace replicant::data {

// A pipeline whose batches are a function of their number, so that its state is
// one number.
//
// Thread-safety: as InputPipeline.
class PositionedPipeline : public replicator::InputPipeline {
 public:
  // Number of batches returned so far, which determines the next one. Batch i
  // of a group has number i * num_groups + group_id in the run.
  virtual int64_t position() const = 0;
  virtual void set_position(int64_t position) = 0;

  // While paused, Next() returns no batch. The pipeline is drained after the
  // first Next() without a batch.
  virtual void SetPaused(bool is_paused) = 0;
  virtual bool is_drained() const = 0;

  // Total time that Next() has waited or worked, seconds.
  virtual double WaitSeconds() const { return 0.0; }
};

}  // namespace replicant::data
