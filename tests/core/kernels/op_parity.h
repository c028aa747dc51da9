#pragma once

#include "core/kernels/backend.h"
#include "tests/core/kernels/op_cases.h"

namespace replicant::testing {

// What the kernels of a backend owe, for one case: forward, gradients of the
// first output, and updated variables. Each reports failures to googletest.

// In f32 against the reference in f64. The tolerance comes from the case's
// length; REPLICANT_TOL_SCALE scales it.
void ExpectMatchesReference(const OpCase& op_case, kernels::Backend& backend);
// With everything that goes in stored as bf16, against the reference in bf16.
void ExpectMatchesReferenceInBF16(const OpCase& op_case,
                                  kernels::Backend& backend);
// Two runs give the same bits.
void ExpectSameBits(const OpCase& op_case, kernels::Backend& backend);

}  // namespace replicant::testing
