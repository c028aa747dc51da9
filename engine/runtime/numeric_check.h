#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/tensor/tensor_view.h"

namespace replicant::runtime {

// A number that a computation cannot use: NaN, an infinity, or an invalid class
// label.
class NumericError : public Error {
 public:
  using Error::Error;
};

// Returns the index of the first element that is NaN or infinite, or
// std::nullopt if there is none, as in tensors of whole numbers.
std::optional<int64_t> FindNotFinite(TensorView tensor);

// Checks a tensor [rows, ...] of a batch: floating elements are finite, and
// with num_classes > 0 elements of i32 or i64 lie in [0, num_classes). Passes
// once over the tensor, and not at all over bytes. Throws NumericError:
//
//   "batch 12: input 'reward': row 5 is nan; want finite numbers"
//   "batch 12: input 'label': row 3 is 1000; want 0 to 999"
void CheckBatchTensor(int64_t batch, const std::string& input,
                      TensorView tensor, int64_t num_classes);

}  // namespace replicant::runtime
