#pragma once

#include "engine/graph/graph.h"

// Distributions over the last dimension, and losses on them. Floating. Every
// function throws ShapeError at `site` for shapes or types that do not fit.
namespace replicant::graph {

// y[...,k] = e^(x[...,k] - max) / sum_j e^(x[...,j] - max), [..., K], K >= 1
Output Softmax(Output x, CallSite site = CallSite::Here());
// y[...,k] = x[...,k] - max - ln sum_j e^(x[...,j] - max)
Output LogSoftmax(Output x, CallSite site = CallSite::Here());

// Cross-entropy between a target distribution and softmax(logits), per row:
//
//   loss[b] = -sum_k target[b,k] * log softmax(logits[b])[k]
//
// Args:
//   logits  [B, K]  unnormalised log-probabilities
//   target  [B, K]  probabilities; each row sums to 1 (not checked)
// Returns:
//   loss    [B]     nats
//
// No gradient flows into `target`: in D4PG it is the projected Bellman target
// (arXiv:1804.08617, algorithm 1).
Output SoftmaxCrossEntropy(Output logits, Output target,
                           CallSite site = CallSite::Here());
// The cross-entropy for class numbers `labels` [B] (i32 or i64). With label
// smoothing s the target is (1 - s) * one_hot + s / K (arXiv:1512.00567,
// section 7). A label outside [0, K) has loss NaN. Throws InvalidArgument
// unless 0 <= s < 1.
Output SoftmaxCrossEntropyWithLabels(Output logits, Output labels,
                                     double label_smoothing = 0.0,
                                     CallSite site = CallSite::Here());

// The distribution of a return on fixed atoms z[k] = v_min + k * (v_max -
// v_min) / (K - 1), after one Bellman backup (arXiv:1707.06887, algorithm 1):
//
//   T[j]   = clip(reward[b] + discount[b] * z[j], v_min, v_max)
//   m[b,k] = sum_j probabilities[b,j] *
//            max(0, 1 - |T[j] - z[k]| / (z[1] - z[0]))
//
// Args:
//   probabilities     [B, K], K >= 2
//   reward, discount  [B]
// Returns:
//   m                 [B, K]; a row sums to what its probabilities sum to
// No gradient: the result is a target. Throws InvalidArgument unless v_min <
// v_max.
Output CategoricalProjection(Output probabilities, Output reward,
                             Output discount, double v_min, double v_max,
                             CallSite site = CallSite::Here());

}  // namespace replicant::graph
