#pragma once

#include <string>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "tests/engine/kernels/op_cases.h"

namespace replicant::testing {

// A case with the gradients of its first output, in the graph of `builder`.
struct CaseProgram {
  std::vector<graph::Output> outputs;
  std::vector<graph::Output> updates;
};
CaseProgram BuildCase(const OpCase& op_case, CaseBuilder& builder);

// The results of a run: the outputs of the op, its gradients, and the variables
// that it updated, by name.
struct CaseResults {
  void Add(TensorView tensor);

  std::vector<std::vector<double>> values;
  std::vector<Shape> shapes;
};

// A builder of f32, with inputs stored as the precision stores tensors.
CaseBuilder BuilderFor(graph::Precision precision);
// Holds what a graph of BuilderFor(passes.precision) gave against the reference
// with these passes: in f64 for f32, in bf16 for bf16. Reports failures to
// googletest.
void ExpectMatchesReference(const OpCase& op_case,
                            const graph::PassOptions& passes,
                            const CaseResults& got);

// The duties of a backend's kernels, for one case: forward, gradients of the
// first output, and updated variables. Each reports failures to googletest.

// In f32 against the reference in f64. The tolerance comes from the case's
// length; REPLICANT_TOL_SCALE scales it.
void ExpectMatchesReference(const OpCase& op_case, kernels::Backend& backend);
// With everything that goes in stored as bf16, against the reference in bf16.
void ExpectMatchesReferenceInBF16(const OpCase& op_case,
                                  kernels::Backend& backend);
// Two runs give the same bits.
void ExpectSameBits(const OpCase& op_case, kernels::Backend& backend);
// Runs with a pass and without it give the same bits in f32, and in bf16.
void ExpectPassChangesNoBit(const OpCase& op_case, const std::string& pass,
                            kernels::Backend& backend);

}  // namespace replicant::testing
