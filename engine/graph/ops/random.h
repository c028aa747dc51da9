#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/graph/graph.h"

// Random numbers that depend only on (seed, op name, step, global row,
// element). They are the same for any number of replicas, threads and backends.
//
// Element e of row r of step s is drawn from the Philox block
//
//   Philox4x32(counter = {s low, s high, first_row + r, e},
//              key     = first word of RandomStream(graph seed, op name))
//
// (base/rng.h). A row is one index of the leading dimension; the rows of
// replica i start at first_row = i * rows. No gradient: these ops have no
// floating input.
namespace replicant::graph {

struct RandomOptions {
  // Names the stream; with the open scopes it must be unique.
  std::string name;
  // Scalar i64: the training step.
  Output step;
  // Global number of this replica's row 0.
  int64_t first_row = 0;
  // Scalar i64, added to first_row in each run. An invalid Output means 0.
  Output row_offset = kNoGradient;
};

// Uniform in [0, 1): the top 24 bits for f32 and bf16 (which rounds them), 53
// bits for f64. Throws ShapeError unless the shape has rank >= 1 and
// options.step and row_offset are scalars i64, InvalidArgument if the name is
// empty or taken.
Output RandomUniform(const RandomOptions& options, DType dtype,
                     const Shape& shape, CallSite site = CallSite::Here());
// Standard normal, by Box and Muller from the block's two 53-bit uniforms.
Output RandomNormal(const RandomOptions& options, DType dtype,
                    const Shape& shape, CallSite site = CallSite::Here());
// Uniform in {low, ..., high - 1}, i32. Throws InvalidArgument unless
// low < high.
Output RandomInt(const RandomOptions& options, const Shape& shape, int64_t low,
                 int64_t high, CallSite site = CallSite::Here());

}  // namespace replicant::graph
