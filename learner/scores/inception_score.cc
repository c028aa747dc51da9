#include "learner/scores/inception_score.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace replicant::learner {
namespace {

// Largest deviation of a row's sum from 1.
constexpr double kTolerance = 1e-3;

void CheckRow(std::span<const float> row, int64_t index) {
  double sum = 0.0;
  bool is_distribution = true;
  for (const float p : row) {
    is_distribution &= p >= 0.0F;
    sum += double{p};
  }
  if (!is_distribution || !(std::abs(sum - 1.0) <= kTolerance)) {
    throw InvalidArgument(fmt::format(
        "ComputeInceptionScore: row {} is not a distribution; its sum is {}",
        index, sum));
  }
}

// `rows` is [n, num_classes].
double ScoreOf(std::span<const float> rows, size_t num_classes) {
  const size_t n = rows.size() / num_classes;
  std::vector<double> marginal(num_classes);
  for (size_t i = 0; i < rows.size(); ++i) {
    marginal[i % num_classes] += double{rows[i]} / static_cast<double>(n);
  }
  double sum = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double p = double{rows[i]};
    if (p > 0.0) sum += p * std::log(p / marginal[i % num_classes]);
  }
  return std::exp(sum / static_cast<double>(n));
}

}  // namespace

InceptionScore ComputeInceptionScore(std::span<const float> probabilities,
                                     int64_t num_classes, int64_t num_splits) {
  const auto size = static_cast<int64_t>(probabilities.size());
  if (num_classes < 1 || num_splits < 1 || size % num_classes != 0 ||
      size / num_classes < num_splits) {
    throw InvalidArgument(fmt::format(
        "ComputeInceptionScore: {} numbers, {} classes, {} splits; want rows "
        "of a number for each class, and a row or more for each split",
        size, num_classes, num_splits));
  }
  const auto row_size = static_cast<size_t>(num_classes);
  const int64_t num_rows = size / num_classes;
  for (int64_t i = 0; i < num_rows; ++i) {
    CheckRow(probabilities.subspan(static_cast<size_t>(i) * row_size, row_size),
             i);
  }
  std::vector<double> scores;
  for (int64_t split = 0; split < num_splits; ++split) {
    const auto begin = static_cast<size_t>(split * num_rows / num_splits);
    const auto end = static_cast<size_t>((split + 1) * num_rows / num_splits);
    scores.push_back(ScoreOf(
        probabilities.subspan(begin * row_size, (end - begin) * row_size),
        row_size));
  }
  InceptionScore result;
  const auto n = static_cast<double>(num_splits);
  for (const double score : scores) result.mean += score / n;
  for (const double score : scores) {
    result.deviation += (score - result.mean) * (score - result.mean) / n;
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

}  // namespace replicant::learner
