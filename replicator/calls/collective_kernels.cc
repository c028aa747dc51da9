#include "replicator/calls/collective_kernels.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replicator/calls/bucket_kernels.h"
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

// Whether the bucket's tensors travel in their own dtype.
bool IsPlain(const BucketSpec& spec) {
  return spec.gradient_format.dtype == spec.dtype;
}

class StartKernel : public BucketStartKernel {
 public:
  using BucketStartKernel::BucketStartKernel;

  // a single tensor may be reduced in place
  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && counts_.size() == 1 && IsPlain(spec_);
  }

 private:
  Collective MakeCall() override {
    const MutableTensorView all(type_.dtype, type_.shape,
                                bucket_->packed.data());
    return {spec_.call.kind, spec_.call.op, 0, all, all,
            // bf16 is scaled after it is converted back to f32
            IsPlain(spec_) ? spec_.call.factor : 1.0, place_};
  }
  void Pack() override {
    std::byte* to = bucket_->packed.data();
    for (size_t i = 0; i < counts_.size(); ++i) {
      const size_t size = counts_[i] * DTypeSize(type_.dtype);
      const std::byte* const from = inputs_[i].data();
      if (!IsPlain(spec_)) {
        comm::Narrow(reinterpret_cast<const float*>(from),
                     reinterpret_cast<BFloat16*>(to), counts_[i]);
      } else if (size > 0 && to != from) {
        std::memcpy(to, from, size);
      }
      to += size;
    }
  }
};

class WaitKernel : public BucketWaitKernel {
 public:
  using BucketWaitKernel::BucketWaitKernel;

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && counts_.size() == 1 && IsPlain(spec_);
  }

 private:
  void Unpack() override {
    const std::byte* from = bucket_->packed.data();
    for (size_t i = 0; i < counts_.size(); ++i) {
      const size_t size = counts_[i] * DTypeSize(spec_.gradient_format.dtype);
      std::byte* const to = outputs_[i].data();
      if (!IsPlain(spec_)) {
        comm::Widen(reinterpret_cast<const BFloat16*>(from),
                    static_cast<float>(spec_.call.factor),
                    reinterpret_cast<float*>(to), counts_[i]);
      } else if (size > 0 && to != from) {
        std::memcpy(to, from, size);
      }
      from += size;
    }
  }
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
  const BucketNode at{queue_, is_host_memory_, bucket, graph, node};
  const bool is_top_k = BucketSpecOf(node).gradient_format.top_k > 0.0;
  if (is_start) {
    if (is_top_k) return MakeTopKStart(at);
    return std::make_unique<StartKernel>(at);
  }
  const WaitMeter meter(waits_, /*is_bucket=*/true);
  if (is_top_k) return MakeTopKWait(at, meter);
  return std::make_unique<WaitKernel>(at, meter);
}

}  // namespace replicant::replicator
