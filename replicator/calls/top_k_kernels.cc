#include "replicator/calls/top_k_kernels.h"

#include <algorithm>
#include <span>
#include <vector>

#include "replicator/comm/reduce.h"
#include "replicator/comm/top_k.h"

namespace replicant::replicator {
namespace {

// What one replica sends of one tensor, within its row of the bucket.
struct Sent {
  std::span<int32_t> indices;
  std::span<float> values;
};

// A row is the indices of every tensor, and then their values.
std::vector<Sent> Divide(std::span<int32_t> row,
                         const std::vector<size_t>& counts, double share) {
  std::vector<Sent> all;
  const std::span<int32_t> values = row.subspan(row.size() / 2);
  size_t begin = 0;
  for (const size_t count : counts) {
    const size_t k = comm::TopKCount(count, share);
    all.push_back({row.subspan(begin, k),
                   {reinterpret_cast<float*>(values.data() + begin), k}});
    begin += k;
  }
  return all;
}

// The row of a replica in the gathered ones.
std::span<int32_t> RowOf(std::byte* gathered, const graph::TensorType& type,
                         int replica) {
  const auto size = static_cast<size_t>(type.shape[1]);
  return {reinterpret_cast<int32_t*>(gathered) +
              static_cast<size_t>(replica) * size,
          size};
}

class TopKStartKernel : public BucketStartKernel {
 public:
  explicit TopKStartKernel(const BucketNode& at) : BucketStartKernel(at) {
    for (const size_t count : counts_) residuals_.emplace_back(count);
  }

 private:
  comm::Collective MakeCall() override {
    std::byte* const gathered = bucket_->packed.data();
    const std::span<int32_t> row = RowOf(gathered, type_, spec_.rank.id);
    sent_ = Divide(row, counts_, spec_.gradient_format.top_k);
    const auto size = static_cast<int64_t>(row.size());
    return {.kind = comm::Collective::Kind::kAllGather,
            .in = TensorView(type_.dtype, Shape({size}), row.data()),
            .out = MutableTensorView(
                type_.dtype, Shape({spec_.rank.count * size}), gathered),
            .place = place_};
  }
  void Pack() override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      residuals_[i].AddAndTake(
          {reinterpret_cast<const float*>(inputs_[i].data()), counts_[i]},
          sent_[i].indices, sent_[i].values);
    }
  }

  // by tensor
  std::vector<comm::TopKResidual> residuals_;
  std::vector<Sent> sent_;
};

class TopKWaitKernel : public BucketWaitKernel {
 public:
  TopKWaitKernel(const BucketNode& at, const WaitMeter& meter)
      : BucketWaitKernel(at, meter),
        gathered_(at.graph.type(at.node.inputs[0])) {}

 private:
  void Unpack() override {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      std::ranges::fill(OutputOf(i), 0.0F);
    }
    for (int replica = 0; replica < spec_.rank.count; ++replica) {
      const std::vector<Sent> sent =
          Divide(RowOf(bucket_->packed.data(), gathered_, replica), counts_,
                 spec_.gradient_format.top_k);
      for (size_t i = 0; i < outputs_.size(); ++i) {
        comm::AddSparse(sent[i].indices, sent[i].values, OutputOf(i));
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      comm::Scale(DType::kF32, spec_.call.factor, outputs_[i].data(),
                  outputs_[i].data(), counts_[i]);
    }
  }
  std::span<float> OutputOf(size_t i) {
    return {reinterpret_cast<float*>(outputs_[i].data()), counts_[i]};
  }

  const graph::TensorType gathered_;
};

}  // namespace

std::unique_ptr<kernels::Kernel> MakeTopKStart(const BucketNode& at) {
  return std::make_unique<TopKStartKernel>(at);
}

std::unique_ptr<kernels::Kernel> MakeTopKWait(const BucketNode& at,
                                              const WaitMeter& meter) {
  return std::make_unique<TopKWaitKernel>(at, meter);
}

}  // namespace replicant::replicator
