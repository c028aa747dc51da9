#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/backend.h"
#include "replicator/calls/bucket.h"
#include "replicator/calls/call_ops.h"
#include "replicator/calls/call_waits.h"

// The kernels of a bucket, without the form in which its tensors travel.
namespace replicant::replicator {

// The arguments of a kernel. The queue outlives it.
struct BucketNode {
  comm::CollectiveQueue& queue;
  bool is_host_memory;
  std::shared_ptr<Bucket> bucket;
  const graph::Graph& graph;
  const graph::Node& node;
};

// Packs tensors into a bucket and starts its call.
class BucketStartKernel : public kernels::Kernel {
 public:
  explicit BucketStartKernel(const BucketNode& at)
      : bucket_(at.bucket),
        spec_(BucketSpecOf(at.node)),
        type_(at.node.outputs[0]),
        place_(at.node.site.ToString()),
        queue_(at.queue) {
    // the last input is a token
    for (size_t i = 0; i + 1 < at.node.inputs.size(); ++i) {
      const graph::TensorType& type = at.graph.type(at.node.inputs[i]);
      counts_.push_back(static_cast<size_t>(type.shape.num_elements()));
      inputs_.emplace_back(at.is_host_memory, type);
    }
  }

  void Bind(const kernels::KernelBindings& bindings) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i].Bind(bindings.inputs[i]);
    }
    bucket_->packed.Bind(bindings.outputs[0]);
    bucket_->work.emplace(MakeCall());
  }
  void Launch(kernels::Stream& stream) override {
    for (HostOperand& input : inputs_) input.Load(stream);
    stream.Synchronize();
    Pack();
    if (spec_.is_async) {
      queue_.Start(*bucket_->work);
    } else {
      queue_.Run(*bucket_->work);
    }
  }

 protected:
  // The call on the packed bytes, whose address is known.
  virtual comm::Collective MakeCall() = 0;
  virtual void Pack() = 0;

  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  const graph::TensorType type_;  // of the packed tensors
  const std::string place_;
  // by tensor
  std::vector<size_t> counts_;
  std::vector<HostOperand> inputs_;

 private:
  comm::CollectiveQueue& queue_;
};

// Waits for a bucket and unpacks it. The packed bytes are in the memory of the
// kernel that starts the bucket.
class BucketWaitKernel : public kernels::Kernel {
 public:
  BucketWaitKernel(const BucketNode& at, WaitMeter meter)
      : bucket_(at.bucket),
        spec_(BucketSpecOf(at.node)),
        queue_(at.queue),
        meter_(std::move(meter)) {
    for (const graph::TensorType& type : at.node.outputs) {
      counts_.push_back(static_cast<size_t>(type.shape.num_elements()));
      outputs_.emplace_back(at.is_host_memory, type);
    }
  }

  void Bind(const kernels::KernelBindings& bindings) override {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i].Bind(bindings.outputs[i]);
    }
  }
  void Launch(kernels::Stream& stream) override {
    if (spec_.is_async) meter_.Measure([&] { queue_.Wait(*bucket_->work); });
    Unpack();
    for (HostOperand& output : outputs_) output.Store(stream);
  }

 protected:
  virtual void Unpack() = 0;

  const std::shared_ptr<Bucket> bucket_;
  const BucketSpec spec_;
  // by tensor
  std::vector<size_t> counts_;
  std::vector<HostOperand> outputs_;

 private:
  comm::CollectiveQueue& queue_;
  WaitMeter meter_;
};

}  // namespace replicant::replicator
