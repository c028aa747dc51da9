#pragma once

#include <string_view>

namespace replicant {

// Combines the elements of several replicas. kMean is the sum times
// 1 / their number, for floating elements.
enum class ReduceOp { kSum, kMean, kMin, kMax, kProd };

// "sum", "mean", ...
constexpr std::string_view ToString(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProd:
      return "prod";
  }
  return "";
}

}  // namespace replicant
