#pragma once

#include <memory>

#include "replicator/calls/bucket_kernels.h"

// The kernels of a bucket whose replicas send only their largest elements
// (GradientFormat::top_k): an all-gather of what each sends, which every
// replica sums in replica order. The first kernel keeps the residual of the
// unsent elements; no checkpoint holds it.
namespace replicant::replicator {

std::unique_ptr<kernels::Kernel> MakeTopKStart(const BucketNode& at);
std::unique_ptr<kernels::Kernel> MakeTopKWait(const BucketNode& at,
                                              const WaitMeter& meter);

}  // namespace replicant::replicator
