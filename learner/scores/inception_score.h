#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace replicant::learner {

// The Inception Score (Salimans et al., arXiv:1606.03498, section 4),
//
//   exp(mean_x KL(p(y|x) || p(y))), p(y) = mean_x p(y|x),
//
// as published: the mean over splits of the images, one after the other.
struct InceptionScore {
  double mean = 0.0;
  double deviation = 0.0;  // standard deviation over the splits
};

// `probabilities` is [n, num_classes] in rows. Throws InvalidArgument for other
// lengths, fewer rows than splits, or rows that are not distributions.
InceptionScore ComputeInceptionScore(std::span<const float> probabilities,
                                     int64_t num_classes,
                                     int64_t num_splits = 10);

}  // namespace replicant::learner
