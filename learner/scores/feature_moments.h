#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace replicant::learner {

// Mean and covariance of feature vectors, in double. Sums are over differences
// from the first vector, so that a mean far from 0 costs no digits.
//
// Thread-safety: one thread at a time.
class FeatureMoments {
 public:
  // Throws InvalidArgument unless `size` is positive.
  explicit FeatureMoments(int64_t size);

  // Adds vectors, [n, size] in rows. Throws InvalidArgument, changing nothing,
  // for another length or a number that is not finite.
  void Add(std::span<const float> features);

  int64_t size() const { return size_; }
  int64_t count() const { return count_; }
  // [size]
  std::vector<double> Mean() const;
  // The unbiased estimate, [size, size]. Throws InvalidArgument for fewer than
  // two vectors.
  std::vector<double> Covariance() const;

 private:
  int64_t size_;
  int64_t count_ = 0;
  std::vector<double> origin_, sums_;
  std::vector<double> products_;  // [size, size], the lower triangle
};

// The Frechet distance of the normal distributions with these moments, the FID
// of their features (Heusel et al., arXiv:1706.08500, section 3):
//
//   |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2))
//
// The trace of the root is the sum of the singular values of C_a^(1/2)
// C_b^(1/2), as accurate as that product: covariances without full rank need no
// special case. Throws InvalidArgument for different sizes or fewer than two
// vectors.
double FrechetDistance(const FeatureMoments& a, const FeatureMoments& b);

}  // namespace replicant::learner
