#include "replicator/calls/device_call_kernels.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "replicator/calls/call_ops.h"

namespace replicant::replicator {
namespace {

using comm::Collective;
using kernels::BucketPart;
using kernels::DeviceCollectives;
using kernels::Kernel;
using kernels::KernelBindings;
using kernels::Stream;

using Bucket = DeviceCallKernels::Bucket;

// The tensors of a bucket where the plan has them.
std::vector<BucketPart> PartsOf(const std::vector<graph::TensorType>& types) {
  std::vector<BucketPart> parts;
  parts.reserve(types.size());
  for (const graph::TensorType& type : types) {
    parts.push_back({nullptr, type.shape.num_elements()});
  }
  return parts;
}

// A call whose result the plan needs at once.
class DeviceCallKernel : public Kernel {
 public:
  DeviceCallKernel(DeviceCommunicator* communicator, kernels::Backend* backend,
                   const graph::Graph& graph, const graph::Node& node)
      : communicator_(*communicator),
        collectives_(*backend->collectives()),
        call_(CallSpecOf(node)),
        in_type_(graph.type(node.inputs[0])),
        out_type_(node.outputs[0]),
        place_(node.site.ToString()),
        done_(backend->CreateEvent()) {}

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 &&
           (call_.kind == Collective::Kind::kAllReduce ||
            call_.kind == Collective::Kind::kBroadcast);
  }
  bool CanRecord() const override { return communicator_.can_record(); }
  void Bind(const KernelBindings& bindings) override {
    in_ = bindings.inputs[0];
    out_ = {bindings.outputs[0], out_type_.shape.num_elements()};
  }
  void Launch(Stream& stream) override {
    communicator_.Launch(
        {call_.kind, call_.op, call_.source,
         // operands of a device are read by the device alone
         TensorView(in_type_.dtype, in_type_.shape, in_),
         MutableTensorView(out_type_.dtype, out_type_.shape, out_.data),
         /*factor=*/1.0, place_},
        stream, *done_);
    stream.Wait(*done_);
    if (call_.factor == 1.0) return;
    collectives_.Unpack(out_.data, out_type_.dtype, call_.factor, {&out_, 1},
                        out_type_.dtype, stream);
  }

 private:
  DeviceCommunicator& communicator_;
  DeviceCollectives& collectives_;
  const CallSpec call_;
  const graph::TensorType in_type_, out_type_;
  const std::string place_;
  const std::unique_ptr<kernels::Event> done_;
  const std::byte* in_ = nullptr;
  BucketPart out_;
};

// Packs tensors into a bucket and starts its reduction.
class DeviceStartKernel : public Kernel {
 public:
  DeviceStartKernel(DeviceCommunicator* communicator,
                    DeviceCollectives* collectives,
                    std::shared_ptr<Bucket> bucket, const graph::Graph& graph,
                    const graph::Node& node)
      : communicator_(*communicator),
        collectives_(*collectives),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        type_(node.outputs[0]),
        place_(node.site.ToString()) {
    std::vector<graph::TensorType> types;
    for (size_t i = 0; i + 1 < node.inputs.size(); ++i) {
      types.push_back(graph.type(node.inputs[i]));
    }
    parts_ = PartsOf(types);
  }

  // a single tensor is reduced in place
  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && parts_.size() == 1 &&
           spec_.gradient_format.dtype == spec_.dtype;
  }
  bool CanRecord() const override { return communicator_.can_record(); }
  int open_forks() const override { return 1; }
  void Bind(const KernelBindings& bindings) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      // packing does not write into the tensors
      parts_[i].data = const_cast<std::byte*>(bindings.inputs[i]);
    }
    bucket_->packed = bindings.outputs[0];
  }
  void Launch(Stream& stream) override {
    collectives_.Pack(parts_, spec_.dtype, bucket_->packed, type_.dtype,
                      stream);
    const MutableTensorView all(type_.dtype, type_.shape, bucket_->packed);
    communicator_.Launch({spec_.call.kind, spec_.call.op, 0, all, all,
                          /*factor=*/1.0, place_},
                         stream, *bucket_->done);
    if (!spec_.is_async) stream.Wait(*bucket_->done);
  }

 private:
  DeviceCommunicator& communicator_;
  DeviceCollectives& collectives_;
  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  const graph::TensorType type_;
  const std::string place_;
  std::vector<BucketPart> parts_;
};

// Lets the plan's stream wait for a bucket, and unpacks it.
class DeviceWaitKernel : public Kernel {
 public:
  DeviceWaitKernel(const DeviceCommunicator* communicator,
                   DeviceCollectives* collectives,
                   std::shared_ptr<Bucket> bucket, const graph::Node& node)
      : communicator_(*communicator),
        collectives_(*collectives),
        bucket_(std::move(bucket)),
        spec_(BucketSpecOf(node)),
        parts_(PartsOf(node.outputs)) {}

  bool CanShare(int input, int output) const override {
    return input == 0 && output == 0 && parts_.size() == 1 &&
           spec_.gradient_format.dtype == spec_.dtype;
  }
  bool CanRecord() const override { return communicator_.can_record(); }
  int open_forks() const override { return -1; }
  void Bind(const KernelBindings& bindings) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].data = bindings.outputs[i];
    }
  }
  void Launch(Stream& stream) override {
    stream.Wait(*bucket_->done);
    collectives_.Unpack(bucket_->packed, spec_.gradient_format.dtype,
                        spec_.call.factor, parts_, spec_.dtype, stream);
  }

 private:
  const DeviceCommunicator& communicator_;
  DeviceCollectives& collectives_;
  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  std::vector<BucketPart> parts_;
};

}  // namespace

std::unique_ptr<Kernel> DeviceCallKernels::Make(const graph::Graph& graph,
                                                const graph::Node& node) {
  const CallNode kind = CallNodeOf(node);
  if (kind == CallNode::kNone) return nullptr;
  const CallSpec call = CallSpecOf(node);
  const bool reduces = call.kind == Collective::Kind::kAllReduce ||
                       call.kind == Collective::Kind::kReduceScatter;
  const DType dtype = kind == CallNode::kCall ? node.outputs[0].dtype
                                              : BucketSpecOf(node).dtype;
  const std::string why = reduces ? communicator_.WhyNot(dtype) : "";
  if (!why.empty()) {
    throw DeviceError(fmt::format("{} cannot run {} '{}' ({}): {}",
                                  backend_.device(), node.op->name, node.name,
                                  node.site.ToString(), why));
  }
  if (kind == CallNode::kCall) {
    return std::make_unique<DeviceCallKernel>(&communicator_, &backend_, graph,
                                              node);
  }
  const BucketSpec spec = BucketSpecOf(node);
  if (spec.gradient_format.top_k > 0.0) return nullptr;
  std::shared_ptr<Bucket>& bucket = buckets_[spec.number];
  if (bucket == nullptr) {
    bucket = std::make_shared<Bucket>(Bucket{.done = backend_.CreateEvent()});
  }
  DeviceCollectives* const collectives = backend_.collectives();
  if (kind == CallNode::kStart) {
    return std::make_unique<DeviceStartKernel>(&communicator_, collectives,
                                               bucket, graph, node);
  }
  return std::make_unique<DeviceWaitKernel>(&communicator_, collectives, bucket,
                                            node);
}

}  // namespace replicant::replicator
