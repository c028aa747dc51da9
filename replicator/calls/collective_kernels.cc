#include "replicator/calls/collective_kernels.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replicator/calls/call_ops.h"
#include "replicator/calls/top_k_kernels.h"
#include "replicator/comm/reduce.h"

namespace replicant::replicator {
namespace {

using comm::Collective;
using comm::CollectiveQueue;
using kernels::Kernel;
using kernels::KernelBindings;
using kernels::Stream;

// A call that the plan waits for.
class CallKernel : public Kernel {
 public:
  CallKernel(CollectiveQueue* queue, bool is_host_memory, WaitMeter meter,
             const graph::Graph& graph, const graph::Node& node)
      : queue_(*queue),
        meter_(std::move(meter)),
        call_(CallSpecOf(node)),
        in_type_(graph.type(node.inputs[0])),
        out_type_(node.outputs[0]),
        in_(is_host_memory, in_type_),
        out_(is_host_memory, out_type_),
        place_(node.site.ToString()) {}

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 &&
           (call_.kind == Collective::Kind::kAllReduce ||
            call_.kind == Collective::Kind::kBroadcast);
  }
  void Bind(const KernelBindings& bindings) override {
    in_.Bind(bindings.inputs[0]);
    out_.Bind(bindings.outputs[0]);
    work_.emplace(Collective{
        call_.kind, call_.op, call_.source,
        TensorView(in_type_.dtype, in_type_.shape, in_.data()),
        MutableTensorView(out_type_.dtype, out_type_.shape, out_.data()),
        call_.factor, place_});
  }
  void Launch(Stream& stream) override {
    in_.Load(stream);
    stream.Synchronize();
    meter_.Measure([&] { queue_.Run(*work_); });
    out_.Store(stream);
  }

 private:
  CollectiveQueue& queue_;
  WaitMeter meter_;
  const CallSpec call_;
  const graph::TensorType in_type_, out_type_;
  HostOperand in_, out_;
  const std::string place_;
  std::optional<CollectiveQueue::Work> work_;
};

// Packs tensors into a bucket and starts its reduction.
class StartKernel : public Kernel {
 public:
  StartKernel(CollectiveQueue* queue, bool is_host_memory,
              std::shared_ptr<Bucket> bucket, const graph::Graph& graph,
              const graph::Node& node)
      : queue_(*queue),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        type_(node.outputs[0]),
        place_(node.site.ToString()) {
    for (size_t i = 0; i + 1 < node.inputs.size(); ++i) {
      const graph::TensorType& type = graph.type(node.inputs[i]);
      sizes_.push_back(BytesOf(type));
      inputs_.emplace_back(is_host_memory, type);
    }
  }

  // a single tensor may be reduced in place
  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && sizes_.size() == 1 &&
           spec_.gradient_format.dtype == spec_.dtype;
  }
  void Bind(const KernelBindings& bindings) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i].Bind(bindings.inputs[i]);
    }
    bucket_->packed.Bind(bindings.outputs[0]);
    const MutableTensorView all(type_.dtype, type_.shape,
                                bucket_->packed.data());
    bucket_->work.emplace(Collective{
        spec_.call.kind, spec_.call.op, 0, all, all,
        // bf16 is scaled after it is converted back to f32
        spec_.gradient_format.dtype == spec_.dtype ? spec_.call.factor : 1.0,
        place_});
  }
  void Launch(Stream& stream) override {
    for (HostOperand& input : inputs_) input.Load(stream);
    stream.Synchronize();
    if (spec_.gradient_format.dtype == spec_.dtype) {
      std::byte* to = bucket_->packed.data();
      for (size_t i = 0; i < sizes_.size(); ++i) {
        if (sizes_[i] > 0 && to != inputs_[i].data()) {
          std::memcpy(to, inputs_[i].data(), sizes_[i]);
        }
        to += sizes_[i];
      }
    } else {
      auto* to = reinterpret_cast<BFloat16*>(bucket_->packed.data());
      for (size_t i = 0; i < sizes_.size(); ++i) {
        const size_t count = sizes_[i] / sizeof(float);
        comm::Narrow(reinterpret_cast<const float*>(inputs_[i].data()), to,
                     count);
        to += count;
      }
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
  std::vector<size_t> sizes_;
  std::vector<HostOperand> inputs_;
};

// Waits for a bucket and unpacks it.
class WaitKernel : public Kernel {
 public:
  WaitKernel(CollectiveQueue* queue, bool is_host_memory, WaitMeter meter,
             std::shared_ptr<Bucket> bucket, const graph::Node& node)
      : queue_(*queue),
        meter_(std::move(meter)),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        types_(node.outputs) {
    for (const graph::TensorType& type : types_) {
      outputs_.emplace_back(is_host_memory, type);
    }
  }

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && types_.size() == 1 &&
           spec_.gradient_format.dtype == spec_.dtype;
  }
  // the packed bytes are in the memory of the kernel that starts the bucket
  void Bind(const KernelBindings& bindings) override {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i].Bind(bindings.outputs[i]);
    }
  }
  void Launch(Stream& stream) override {
    if (spec_.is_async) meter_.Measure([&] { queue_.Wait(*bucket_->work); });
    if (spec_.gradient_format.dtype == spec_.dtype) {
      Copy();
    } else {
      Widen();
    }
    for (HostOperand& output : outputs_) output.Store(stream);
  }

 private:
  void Copy() {
    const std::byte* from = bucket_->packed.data();
    for (size_t i = 0; i < types_.size(); ++i) {
      const size_t size = BytesOf(types_[i]);
      if (size > 0 && from != outputs_[i].data()) {
        std::memcpy(outputs_[i].data(), from, size);
      }
      from += size;
    }
  }
  void Widen() {
    const auto* from =
        reinterpret_cast<const BFloat16*>(bucket_->packed.data());
    for (size_t i = 0; i < types_.size(); ++i) {
      const auto count = static_cast<size_t>(types_[i].shape.num_elements());
      comm::Widen(from, static_cast<float>(spec_.call.factor),
                  reinterpret_cast<float*>(outputs_[i].data()), count);
      from += count;
    }
  }

  CollectiveQueue& queue_;
  WaitMeter meter_;
  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  const std::vector<graph::TensorType> types_;
  std::vector<HostOperand> outputs_;
};

}  // namespace

std::unique_ptr<Kernel> CollectiveKernels::Make(const graph::Graph& graph,
                                                const graph::Node& node) {
  const CallNode kind = CallNodeOf(node);
  if (kind == CallNode::kNone) return nullptr;
  if (kind == CallNode::kCall) {
    return std::make_unique<CallKernel>(&queue_, is_host_memory_,
                                        WaitMeter(waits_, /*is_bucket=*/false),
                                        graph, node);
  }
  const bool is_start = kind == CallNode::kStart;
  std::shared_ptr<Bucket>& bucket = buckets_[BucketSpecOf(node).number];
  if (bucket == nullptr) {
    const graph::TensorType& type =
        is_start ? node.outputs[0] : graph.type(node.inputs[0]);
    bucket = std::make_shared<Bucket>(
        Bucket{.packed = HostOperand(is_host_memory_, type)});
  }
  if (BucketSpecOf(node).gradient_format.top_k > 0.0) {
    return is_start
               ? MakeTopKStart(&queue_, is_host_memory_, bucket, graph, node)
               : MakeTopKWait(&queue_, is_host_memory_,
                              WaitMeter(waits_, /*is_bucket=*/true), bucket,
                              node);
  }
  if (is_start) {
    return std::make_unique<StartKernel>(&queue_, is_host_memory_, bucket,
                                         graph, node);
  }
  return std::make_unique<WaitKernel>(&queue_, is_host_memory_,
                                      WaitMeter(waits_, /*is_bucket=*/true),
                                      bucket, node);
}

}  // namespace replicant::replicator
