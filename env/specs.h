#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace replicant::env {

// One named array of an observation.
struct ArraySpec {
  std::string name;
  Shape shape;  // a scalar has rank 0
  DType dtype = DType::kF64;
};

// The arrays of an observation, in the order of dm_control's keys.
// The f64 arrays lie one after the other in ObservationBuffer::state, the u8
// arrays in ObservationBuffer::pixels.
struct ObservationSpec {
  std::vector<ArraySpec> arrays;
  // Bytes of ObservationBuffer::frame; 0 without pixels. With several u8 arrays
  // it holds the newest frame of each, in their order.
  int64_t frame_size = 0;

  // Number of elements of all f64 arrays, and of all u8 arrays.
  int64_t state_size() const;
  int64_t pixels_size() const;
  // Throws InvalidArgument, with the nearest name, if there is no such array.
  const ArraySpec& Find(const std::string& name) const;
  // Index of the array's first element in its buffer. Throws as Find() does.
  int64_t Offset(const std::string& name) const;
};

// Bounds of an action, both included; -1e10 and 1e10 for an unbounded actuator.
// An action beyond them reaches MuJoCo unchanged.
struct ActionSpec {
  std::vector<double> minimum;
  std::vector<double> maximum;

  int64_t size() const { return static_cast<int64_t>(minimum.size()); }
  bool HasBounds(size_t i) const;
};

// Draws each element of `action`, which has spec.size() elements, uniformly
// between its bounds; without bounds in [-1, 1].
void DrawAction(const ActionSpec& spec, RandomStream& random,
                std::span<double> action);

// Throws InvalidArgument unless `action` has spec.size() finite elements.
// `where` starts the message.
void CheckAction(std::span<const double> action, const ActionSpec& spec,
                 const std::string& where);

// Buffers into which an environment writes an observation, row-major, without
// an intermediate copy. A span has the size of the spec or is empty; data for
// an empty span is not computed.
struct ObservationBuffer {
  std::span<double> state;
  std::span<uint8_t> pixels;
  // The newest of the frames that `pixels` stacks, [height, width, 3]; of
  // several images one after the other.
  std::span<uint8_t> frame;
};

// Throws InvalidArgument unless every span is empty or has the size in `spec`.
// `where` starts the message.
void CheckBuffer(const ObservationBuffer& out, const ObservationSpec& spec,
                 const std::string& where);

}  // namespace replicant::env
