#include "replicator/calls/top_k_kernels.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replicator/calls/call_ops.h"
#include "replicator/comm/reduce.h"
#include "replicator/comm/top_k.h"

namespace replicant::replicator {
namespace {

using comm::Collective;
using comm::CollectiveQueue;
using kernels::Kernel;
using kernels::KernelBindings;
using kernels::Stream;

size_t CountOf(const graph::TensorType& type) {
  return static_cast<size_t>(type.shape.num_elements());
}

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

class TopKStartKernel : public Kernel {
 public:
  TopKStartKernel(CollectiveQueue* queue, bool is_host_memory,
                  std::shared_ptr<Bucket> bucket, const graph::Graph& graph,
                  const graph::Node& node)
      : queue_(*queue),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        type_(node.outputs[0]),
        place_(node.site.ToString()) {
    for (size_t i = 0; i + 1 < node.inputs.size(); ++i) {
      const graph::TensorType& type = graph.type(node.inputs[i]);
      counts_.push_back(CountOf(type));
      inputs_.emplace_back(is_host_memory, type);
      residuals_.emplace_back(counts_.back());
    }
  }

  void Bind(const KernelBindings& bindings) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i].Bind(bindings.inputs[i]);
    }
    bucket_->packed.Bind(bindings.outputs[0]);
    std::byte* const gathered = bucket_->packed.data();
    const std::span<int32_t> row = RowOf(gathered, type_, spec_.rank.id);
    sent_ = Divide(row, counts_, spec_.gradient_format.top_k);
    const auto size = static_cast<int64_t>(row.size());
    bucket_->work.emplace(
        Collective{.kind = Collective::Kind::kAllGather,
                   .in = TensorView(type_.dtype, Shape({size}), row.data()),
                   .out = MutableTensorView(
                       type_.dtype, Shape({spec_.rank.count * size}), gathered),
                   .place = place_});
  }

  void Launch(Stream& stream) override {
    for (HostOperand& input : inputs_) input.Load(stream);
    stream.Synchronize();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      residuals_[i].AddAndTake(
          {reinterpret_cast<const float*>(inputs_[i].data()), counts_[i]},
          sent_[i].indices, sent_[i].values);
    }
    if (spec_.is_async) {
      queue_.Start(*bucket_->work);
    } else {
      queue_.Run(*bucket_->work);
    }
  }

 private:
  CollectiveQueue& queue_;
  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  const graph::TensorType type_;
  const std::string place_;
  // by tensor
  std::vector<size_t> counts_;
  std::vector<HostOperand> inputs_;
  std::vector<comm::TopKResidual> residuals_;
  std::vector<Sent> sent_;
};

class TopKWaitKernel : public Kernel {
 public:
  TopKWaitKernel(CollectiveQueue* queue, bool is_host_memory, WaitMeter meter,
                 std::shared_ptr<Bucket> bucket, const graph::Node& node)
      : queue_(*queue),
        meter_(std::move(meter)),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)) {
    int64_t sent = 0;
    for (const graph::TensorType& type : node.outputs) {
      counts_.push_back(CountOf(type));
      outputs_.emplace_back(is_host_memory, type);
      sent += static_cast<int64_t>(
          comm::TopKCount(counts_.back(), spec_.gradient_format.top_k));
    }
    gathered_ = {DType::kI32, Shape({spec_.rank.count, 2 * sent})};
  }

  void Bind(const KernelBindings& bindings) override {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i].Bind(bindings.outputs[i]);
    }
  }

  void Launch(Stream& stream) override {
    if (spec_.is_async) meter_.Measure([&] { queue_.Wait(*bucket_->work); });
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
      outputs_[i].Store(stream);
    }
  }

 private:
  std::span<float> OutputOf(size_t i) {
    return {reinterpret_cast<float*>(outputs_[i].data()), counts_[i]};
  }

  CollectiveQueue& queue_;
  WaitMeter meter_;
  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  graph::TensorType gathered_;
  // by tensor
  std::vector<size_t> counts_;
  std::vector<HostOperand> outputs_;
};

}  // namespace

std::unique_ptr<Kernel> MakeTopKStart(CollectiveQueue* queue,
                                      bool is_host_memory,
                                      std::shared_ptr<Bucket> bucket,
                                      const graph::Graph& graph,
                                      const graph::Node& node) {
  return std::make_unique<TopKStartKernel>(queue, is_host_memory,
                                           std::move(bucket), graph, node);
}

std::unique_ptr<Kernel> MakeTopKWait(CollectiveQueue* queue,
                                     bool is_host_memory, WaitMeter meter,
                                     std::shared_ptr<Bucket> bucket,
                                     const graph::Node& node) {
  return std::make_unique<TopKWaitKernel>(
      queue, is_host_memory, std::move(meter), std::move(bucket), node);
}

}  // namespace replicant::replicator
