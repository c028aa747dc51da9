#include "core/replicator/graph/collective_kernels.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/reduce.h"
#include "core/replicator/graph/call_ops.h"

namespace replicant::replicator {
namespace {

using comm::Collective;
using comm::CollectiveQueue;
using kernels::Kernel;
using kernels::KernelBindings;
using kernels::Stream;
using SharedWork = CollectiveKernels::SharedWork;

size_t BytesOf(const graph::TensorType& type) {
  return static_cast<size_t>(type.shape.num_elements()) * DTypeSize(type.dtype);
}

// A call that the plan waits for, from and to the tensors themselves.
class CallKernel : public Kernel {
 public:
  CallKernel(CollectiveQueue* queue, WaitMeter meter, const graph::Graph& graph,
             const graph::Node& node)
      : queue_(*queue),
        meter_(std::move(meter)),
        call_(CallSpecOf(node)),
        in_(graph.type(node.inputs[0])),
        out_(node.outputs[0]),
        place_(node.site.ToString()) {}

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 &&
           (call_.kind == Collective::Kind::kAllReduce ||
            call_.kind == Collective::Kind::kBroadcast);
  }
  void Bind(const KernelBindings& bindings) override {
    work_.emplace(Collective{
        call_.kind, call_.op, call_.source,
        TensorView(in_.dtype, in_.shape, bindings.inputs[0]),
        MutableTensorView(out_.dtype, out_.shape, bindings.outputs[0]),
        call_.factor, place_});
  }
  void Launch(Stream& /*stream*/) override {
    meter_.Measure([&] { queue_.Run(*work_); });
  }

 private:
  CollectiveQueue& queue_;
  WaitMeter meter_;
  const CallSpec call_;
  const graph::TensorType in_;
  const graph::TensorType out_;
  const std::string place_;
  std::optional<CollectiveQueue::Work> work_;
};

// Packs tensors into a bucket and has it reduced.
class StartKernel : public Kernel {
 public:
  StartKernel(CollectiveQueue* queue, SharedWork bucket,
              const graph::Graph& graph, const graph::Node& node)
      : queue_(*queue),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        type_(node.outputs[0]),
        place_(node.site.ToString()) {
    for (size_t i = 0; i + 1 < node.inputs.size(); ++i) {
      sizes_.push_back(BytesOf(graph.type(node.inputs[i])));
    }
  }

  // a single tensor may be reduced where it lies
  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && sizes_.size() == 1 &&
           spec_.wire == spec_.dtype;
  }
  void Bind(const KernelBindings& bindings) override {
    inputs_ = bindings.inputs;
    packed_ = bindings.outputs[0];
    const MutableTensorView all(type_.dtype, type_.shape, packed_);
    bucket_->emplace(Collective{
        spec_.call.kind, spec_.call.op, 0, all, all,
        // bf16 is multiplied when it is f32 again
        spec_.wire == spec_.dtype ? spec_.call.factor : 1.0, place_});
  }
  void Launch(Stream& /*stream*/) override {
    if (spec_.wire == spec_.dtype) {
      std::byte* to = packed_;
      for (size_t i = 0; i < sizes_.size(); ++i) {
        if (sizes_[i] > 0 && to != inputs_[i]) {
          std::memcpy(to, inputs_[i], sizes_[i]);
        }
        to += sizes_[i];
      }
    } else {
      auto* to = reinterpret_cast<BFloat16*>(packed_);
      for (size_t i = 0; i < sizes_.size(); ++i) {
        const size_t count = sizes_[i] / sizeof(float);
        comm::Narrow(reinterpret_cast<const float*>(inputs_[i]), to, count);
        to += count;
      }
    }
    if (spec_.is_async) {
      queue_.Start(**bucket_);
    } else {
      queue_.Run(**bucket_);
    }
  }

 private:
  CollectiveQueue& queue_;
  const SharedWork bucket_;
  const BucketSpec spec_;
  const graph::TensorType type_;
  const std::string place_;
  std::vector<size_t> sizes_;
  std::vector<const std::byte*> inputs_;
  std::byte* packed_ = nullptr;
};

// Waits for a bucket and unpacks it.
class WaitKernel : public Kernel {
 public:
  WaitKernel(CollectiveQueue* queue, WaitMeter meter, SharedWork bucket,
             const graph::Node& node)
      : queue_(*queue),
        meter_(std::move(meter)),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        types_(node.outputs) {}

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && types_.size() == 1 &&
           spec_.wire == spec_.dtype;
  }
  void Bind(const KernelBindings& bindings) override {
    packed_ = bindings.inputs[0];
    outputs_ = bindings.outputs;
  }
  void Launch(Stream& /*stream*/) override {
    if (spec_.is_async) meter_.Measure([&] { queue_.Wait(**bucket_); });
    if (spec_.wire != spec_.dtype) {
      Widen();
      return;
    }
    const std::byte* from = packed_;
    for (size_t i = 0; i < types_.size(); ++i) {
      const size_t size = BytesOf(types_[i]);
      if (size > 0 && from != outputs_[i]) {
        std::memcpy(outputs_[i], from, size);
      }
      from += size;
    }
  }

 private:
  void Widen() {
    const auto* from = reinterpret_cast<const BFloat16*>(packed_);
    for (size_t i = 0; i < types_.size(); ++i) {
      const auto count = static_cast<size_t>(types_[i].shape.num_elements());
      comm::Widen(from, static_cast<float>(spec_.call.factor),
                  reinterpret_cast<float*>(outputs_[i]), count);
      from += count;
    }
  }

  CollectiveQueue& queue_;
  WaitMeter meter_;
  const SharedWork bucket_;
  const BucketSpec spec_;
  const std::vector<graph::TensorType> types_;
  const std::byte* packed_ = nullptr;
  std::vector<std::byte*> outputs_;
};

}  // namespace

std::unique_ptr<Kernel> CollectiveKernels::Make(const graph::Graph& graph,
                                                const graph::Node& node) {
  const CallNode kind = CallNodeOf(node);
  if (kind == CallNode::kNone) return nullptr;
  if (kind == CallNode::kCall) {
    return std::make_unique<CallKernel>(
        &queue_, WaitMeter(waits_, /*is_bucket=*/false), graph, node);
  }
  SharedWork& bucket = buckets_[BucketSpecOf(node).number];
  if (bucket == nullptr) bucket = std::make_shared<SharedWork::element_type>();
  if (kind == CallNode::kStart) {
    return std::make_unique<StartKernel>(&queue_, bucket, graph, node);
  }
  return std::make_unique<WaitKernel>(
      &queue_, WaitMeter(waits_, /*is_bucket=*/true), bucket, node);
}

}  // namespace replicant::replicator
