#pragma once

#include <cstdint>
#include <vector>

#include "replicator/replicator.h"

// K-FAC (Martens and Grosse 2015, arXiv:1503.05671) for a stack of dense layers
// with tanh between them, which learns targets "y" [B, O] from "x" [B, I] by
// least squares.
//
// The Fisher matrix of a layer's weights W [out, in + 1] is taken as a product
// of two factors, the mean over examples of a a^T (inputs with a 1 for the
// bias) and of g g^T (gradients at the layer's sums, for targets drawn from the
// model), both moving averages. A step goes along
//
//   (G + pi^-1 sqrt(damping) I)^-1  dW  (A + pi sqrt(damping) I)^-1
//
// with pi of section 6.3. The inverses dominate the cost: MapGather()
// distributes them, so that each replica inverts its part of the factors and
// all replicas get all results. N replicas learn what one learns from the whole
// batch.
//
// Differs from arXiv:1503.05671: no momentum and no adaptive damping, and a
// step uses the averages before its own batch, so that they may be held by
// parameter servers.
struct KfacOptions {
  std::vector<int64_t> sizes = {2, 16, 16, 1};  // of the layers, inputs first
  double learning_rate = 0.05;
  double damping = 0.01;
  double decay = 0.9;  // of the moving averages
  replicant::DType dtype = replicant::DType::kF32;
};

// The step of one replica. Value: "loss", [].
replicant::replicator::StepFn KfacStep(const KfacOptions& options);
