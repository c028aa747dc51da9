#pragma once

#include <cstdint>
#include <span>

#include "base/tensor/tensor_view.h"

namespace replicant::actors {

// Chooses the actions of E environments. PolicyRunner computes them;
// RemotePolicy asks the inference server of the host.
//
// Thread-safety: one thread makes all calls.
class Policy {
 public:
  virtual ~Policy() = default;

  // The inputs, to be filled before Act(): observations [E, ...] of the task's
  // shape, u8 or f32, the states in addition to pixels [E, S], empty without,
  // and with noise the noise scale by environment [E].
  virtual MutableTensorView observations() = 0;
  virtual std::span<float> states() = 0;
  virtual std::span<float> noise_scales() = 0;

  // Returns actions in [-1, 1], f32 [E, A]; valid until the next call. `step`
  // keys the noise: calls with one step share a draw.
  virtual TensorView Act(int64_t step) = 0;
};

}  // namespace replicant::actors
