#include "learner/scores/feature_moments.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace replicant::learner {
namespace {

using RowMatrix =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const RowMatrix> MatrixOf(const std::vector<double>& values,
                                     int64_t size) {
  return {values.data(), size, size};
}

// Roots of the eigenvalues of a positive semidefinite matrix. Limit below which
// an eigenvalue counts as 0, since rounding may have changed it.
Eigen::VectorXd RootsOf(const Eigen::VectorXd& eigenvalues) {
  const double rounding = static_cast<double>(eigenvalues.size()) *
                          std::numeric_limits<double>::epsilon() *
                          eigenvalues.cwiseAbs().maxCoeff();
  return (eigenvalues.array() > rounding).select(eigenvalues, 0.0).cwiseSqrt();
}

RowMatrix RootOf(const RowMatrix& matrix) {
  const Eigen::SelfAdjointEigenSolver<RowMatrix> solver(matrix);
  return solver.eigenvectors() * RootsOf(solver.eigenvalues()).asDiagonal() *
         solver.eigenvectors().transpose();
}

// The trace of the root of a b: the root of a, times b, times the root of a has
// its eigenvalues and is symmetric.
double TraceOfRoot(const RowMatrix& a, const RowMatrix& b) {
  const RowMatrix root = RootOf(a);
  const Eigen::SelfAdjointEigenSolver<RowMatrix> solver(root * b * root,
                                                        Eigen::EigenvaluesOnly);
  return RootsOf(solver.eigenvalues()).sum();
}

}  // namespace

FeatureMoments::FeatureMoments(int64_t size) : size_(size) {
  if (size < 1) {
    throw InvalidArgument(
        fmt::format("FeatureMoments: features of {} numbers", size));
  }
  sums_.resize(static_cast<size_t>(size));
  products_.resize(static_cast<size_t>(size * size));
}

void FeatureMoments::Add(std::span<const float> features) {
  const auto num_values = static_cast<int64_t>(features.size());
  if (num_values % size_ != 0) {
    throw InvalidArgument(fmt::format(
        "FeatureMoments: {} numbers are no vectors of {}", num_values, size_));
  }
  if (!std::ranges::all_of(features,
                           [](float value) { return std::isfinite(value); })) {
    throw InvalidArgument("FeatureMoments: a feature is not finite");
  }
  if (features.empty()) return;
  if (count_ == 0) {
    origin_.assign(features.begin(), features.begin() + size_);
  }
  const int64_t rows = num_values / size_;
  const Eigen::Map<const Eigen::RowVectorXd> origin(origin_.data(), size_);
  const RowMatrix x =
      Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic,
                                     Eigen::RowMajor>>(features.data(), rows,
                                                       size_)
          .cast<double>()
          .rowwise() -
      origin;
  Eigen::Map<Eigen::RowVectorXd>(sums_.data(), size_) += x.colwise().sum();
  Eigen::Map<RowMatrix>(products_.data(), size_, size_)
      .selfadjointView<Eigen::Lower>()
      .rankUpdate(x.transpose());
  count_ += rows;
}

std::vector<double> FeatureMoments::Mean() const {
  std::vector<double> mean(static_cast<size_t>(size_));
  if (count_ == 0) return mean;
  for (size_t i = 0; i < mean.size(); ++i) {
    mean[i] = origin_[i] + sums_[i] / static_cast<double>(count_);
  }
  return mean;
}

std::vector<double> FeatureMoments::Covariance() const {
  if (count_ < 2) {
    throw InvalidArgument(fmt::format(
        "FeatureMoments: a covariance of {} vectors; want two or more",
        count_));
  }
  const auto n = static_cast<double>(count_);
  const Eigen::Map<const Eigen::RowVectorXd> sums(sums_.data(), size_);
  const RowMatrix products =
      MatrixOf(products_, size_).selfadjointView<Eigen::Lower>();
  std::vector<double> covariance(products_.size());
  Eigen::Map<RowMatrix>(covariance.data(), size_, size_) =
      (products - sums.transpose() * sums / n) / (n - 1.0);
  return covariance;
}

double FrechetDistance(const FeatureMoments& a, const FeatureMoments& b) {
  if (a.size() != b.size()) {
    throw InvalidArgument(
        fmt::format("FrechetDistance: features of {} and of {} numbers",
                    a.size(), b.size()));
  }
  const std::vector<double> mean_a = a.Mean(), mean_b = b.Mean();
  const std::vector<double> values_a = a.Covariance(),
                            values_b = b.Covariance();
  const RowMatrix covariance_a = MatrixOf(values_a, a.size());
  const RowMatrix covariance_b = MatrixOf(values_b, b.size());
  double distance = covariance_a.trace() + covariance_b.trace() -
                    2.0 * TraceOfRoot(covariance_a, covariance_b);
  for (size_t i = 0; i < mean_a.size(); ++i) {
    distance += (mean_a[i] - mean_b[i]) * (mean_a[i] - mean_b[i]);
  }
  return distance;
}

}  // namespace replicant::learner
