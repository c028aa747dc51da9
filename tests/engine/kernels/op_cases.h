#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/engine/kernels/case_builder.h"

namespace replicant::testing {

// One op at one size.
struct OpCase {
  // "MatMul_7x13x5"
  std::string name;
  // Adds the op and returns what to compare. Variables that it updates are
  // compared as well.
  std::function<std::vector<graph::Output>(CaseBuilder&)> build;
  // Terms of the longest sum: how far roundings may add up.
  double length = 1.0;
  // Whether the gradients of the first output are compared, too.
  bool has_gradient = true;
  // Whether a StableHLO module can have it.
  bool has_module = true;
};

std::vector<OpCase> AllOpCases();

// Its parts, a file each. Odd sizes catch wrong tails of vectors and tiles; the
// larger ones catch wrong parts of threads.
void AddElementwiseCases(std::vector<OpCase>& cases);
// Matrix products, and what goes over rows: sums, norms, losses, indices.
void AddRowCases(std::vector<OpCase>& cases);
// Convolutions, pools, batch norms.
void AddImageCases(std::vector<OpCase>& cases);
// Optimizers and other updates of variables.
void AddUpdateCases(std::vector<OpCase>& cases);

}  // namespace replicant::testing
