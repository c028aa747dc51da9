#include "replicator/calls/transfers.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "replicator/calls/host_operand.h"

namespace replicant::replicator {
namespace {

using graph::InferContext;
using graph::Node;
using graph::OpDef;
using graph::TensorType;

std::vector<TensorType> InferSend(const InferContext& context) {
  return {context.inputs[1]};
}

std::vector<TensorType> InferReceive(const InferContext& context) {
  return {{*ParseDType(context.attributes.Text("dtype")),
           Shape(std::span(context.attributes.Ints("shape")))},
          context.inputs[0]};
}

constexpr std::string_view kNoTransferGradient =
    "gradients are taken before it is there";
constexpr OpDef kSend{.name = "Send",
                      .infer = &InferSend,
                      .no_gradient_reason = kNoTransferGradient,
                      .is_pure = false};
constexpr OpDef kReceive{.name = "Receive",
                         .infer = &InferReceive,
                         .no_gradient_reason = kNoTransferGradient,
                         .is_pure = false};

// State shared by both sides of a transfer.
class TransferKernel : public kernels::Kernel {
 public:
  TransferKernel(Channels* channels, int64_t channel, bool is_send,
                 const TensorType& type, bool is_host_memory)
      : channels_(*channels),
        channel_(channel),
        is_send_(is_send),
        size_bytes_(type.SizeBytes()),
        tensor_(is_host_memory, type) {}

  void Bind(const kernels::KernelBindings& bindings) override {
    tensor_.Bind(is_send_ ? bindings.inputs[0] : bindings.outputs[0]);
  }
  void Launch(kernels::Stream& stream) override {
    if (is_send_) {
      tensor_.Load(stream);
      stream.Synchronize();
      channels_.Put(channel_, tensor_.data(), size_bytes_);
    } else {
      channels_.Take(channel_, tensor_.data(), size_bytes_);
      tensor_.Store(stream);
    }
  }

 private:
  Channels& channels_;
  const int64_t channel_;
  const bool is_send_;
  const size_t size_bytes_;
  HostOperand tensor_;
};

}  // namespace

graph::Output AddSend(graph::Output x, graph::Output token, int64_t channel,
                      graph::CallSite site) {
  return x.graph->Add({.op = &kSend,
                       .inputs = {x, token},
                       .attributes = {{"channel", channel}}},
                      site);
}

graph::Output AddReceive(const TensorType& type, graph::Output token,
                         int64_t channel, graph::CallSite site) {
  const auto dims = type.shape.dims();
  return token.graph->Add(
      {.op = &kReceive,
       .inputs = {token},
       .attributes = {{"channel", channel},
                      {"dtype", std::string(DTypeName(type.dtype))},
                      {"shape",
                       std::vector<int64_t>(dims.begin(), dims.end())}}},
      site);
}

void Channels::Put(int64_t channel, const std::byte* data, size_t size_bytes) {
  Channel& to = channels_[static_cast<size_t>(channel)];
  // allocates in the first step only
  if (to.data.size() != size_bytes) to.data.resize(size_bytes);
  if (size_bytes > 0) std::memcpy(to.data.data(), data, size_bytes);
  const MutexLock lock(mutex_);
  REPLICANT_CHECK(!to.is_full, "channel {} holds a tensor already", channel);
  to.is_full = true;
  changed_.NotifyAll();
}

void Channels::Take(int64_t channel, std::byte* data, size_t size_bytes) {
  Channel& from = channels_[static_cast<size_t>(channel)];
  {
    const MutexLock lock(mutex_);
    const bool is_there = Clock::Real().WaitUntil(
        mutex_, changed_, Clock::Real().Now() + timeout_,
        [&]() REQUIRES(mutex_) { return from.is_full || is_aborted_; });
    if (!is_there) {
      throw CommError(fmt::format(
          "a logical device waited {} s for tensor {} of another one",
          static_cast<double>(timeout_.count()) / 1e3, channel));
    }
    if (is_aborted_) throw CommError(reason_);
  }
  REPLICANT_CHECK_EQ(from.data.size(), size_bytes);
  if (size_bytes > 0) std::memcpy(data, from.data.data(), size_bytes);
  const MutexLock lock(mutex_);
  from.is_full = false;
}

void Channels::Abort(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (!is_aborted_) reason_ = reason;
  is_aborted_ = true;
  changed_.NotifyAll();
}

std::unique_ptr<kernels::Kernel> Channels::MakeKernel(const graph::Graph& graph,
                                                      const Node& node,
                                                      bool is_host_memory) {
  const bool is_send = node.op == &kSend;
  if (!is_send && node.op != &kReceive) return nullptr;
  const TensorType& type =
      is_send ? graph.type(node.inputs[0]) : node.outputs[0];
  return std::make_unique<TransferKernel>(this, node.attributes.Int("channel"),
                                          is_send, type, is_host_memory);
}

}  // namespace replicant::replicator
