#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/kernels/common/host_kernel.h"
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/kernel_list.h"
#include "engine/kernels/cuda/plan_tuner.h"

namespace replicant::kernels::cuda {

// Device memory that the kernel of a node may touch.
struct OperandRanges {
  std::vector<MemoryRange> reads;   // inputs, scratch
  std::vector<MemoryRange> writes;  // outputs, scratch
};

// One call of a node's kernel: a launch, a copy or a call of a library.
class Step {
 public:
  virtual ~Step() = default;

  virtual void Bind(const KernelBindings& bindings,
                    const OperandRanges& ranges) = 0;
  // The context of `device` is current. Throws DeviceError.
  virtual void Launch(const Device& device, CUstream stream) = 0;
  // Whether Launch() has nothing to do, as bound.
  virtual bool IsEmpty() const { return false; }
  virtual LaunchDescription Describe() const { return {}; }
};

// Typed addresses of operands.
template <typename T>
const T* In(const KernelBindings& bindings, size_t input) {
  return reinterpret_cast<const T*>(bindings.inputs[input]);
}
template <typename T>
T* Out(const KernelBindings& bindings, size_t output = 0) {
  return reinterpret_cast<T*>(bindings.outputs[output]);
}
template <typename T>
T* Scratch(const KernelBindings& bindings, size_t offset) {
  return reinterpret_cast<T*>(bindings.scratch + offset);
}

// The grid of `count` elements or rows.
KernelLaunch LaunchOf(CUfunction function, int64_t count, bool is_row);

// A launch of an own kernel. `bind` sets the addresses in its body.
template <typename Body>
class BodyStep : public Step {
 public:
  using BindFunction = std::function<void(Body&, const KernelBindings&)>;

  BodyStep(const Device& device, const Body& body, int64_t count,
           BindFunction bind)
      : body_(body),
        bind_(std::move(bind)),
        launch_(LaunchOf(device.FindFunction(KernelName<Body>::kName), count,
                         KernelName<Body>::kIsRow)) {
    launch_.argument = &body_;
    launch_.argument_size_bytes = sizeof body_;
  }
  BodyStep(const BodyStep&) = delete;
  BodyStep& operator=(const BodyStep&) = delete;

  void Bind(const KernelBindings& bindings,
            const OperandRanges& ranges) override {
    bind_(body_, bindings);
    launch_.reads = ranges.reads;
    launch_.writes = ranges.writes;
  }
  void Launch(const Device& device, CUstream stream) override {
    device.Check(device.libraries().driver->LaunchKernel(launch_, stream),
                 KernelName<Body>::kName);
  }
  LaunchDescription Describe() const override {
    return {.kind = LaunchDescription::Kind::kOwnKernel,
            .name = KernelName<Body>::kName};
  }

 private:
  Body body_;
  BindFunction bind_;
  KernelLaunch launch_;
};

// Makes the kernel of one node from steps, which run in the order in which they
// are added.
class KernelBuilder {
 public:
  // The references outlive the builder.
  KernelBuilder(std::shared_ptr<const Device> device, FunctionCache& functions,
                PlanTuner& plans, const KernelRequest& request)
      : device_(std::move(device)),
        functions_(functions),
        plans_(plans),
        request_(request) {}

  const Device& device() const { return *device_; }
  FunctionCache& functions() const { return functions_; }
  // Plans of the libraries.
  PlanTuner& plans() const { return plans_; }
  const graph::TensorType& input(size_t i = 0) const {
    return request_.input(i);
  }
  const graph::TensorType& output(size_t i = 0) const {
    return request_.output(i);
  }
  const KernelRequest& request() const { return request_; }
  const graph::Node& node() const { return request_.node; }
  const graph::Attributes& attributes() const {
    return request_.node.attributes;
  }

  // Takes `size_bytes` of scratch for all steps; returns their offset.
  size_t AddScratch(size_t size_bytes);
  // The same for memory that a library uses within one of its calls, aligned
  // for any.
  size_t AddWorkspace(size_t size_bytes);
  // Lets output 0 take the memory of an input of its shape and element size.
  void ShareElements() { shares_elements_ = true; }
  // Notes that of input 0 no more bytes are read than output 0 has.
  void SelectRows() { selects_rows_ = true; }
  // Notes that a later step reads so many bytes of operands again.
  void ReadAgain(size_t size_bytes) { reread_bytes_ += size_bytes; }

  void Add(std::unique_ptr<Step> step) { steps_.push_back(std::move(step)); }
  // Computes `count` elements, or rows, with an own kernel; nothing for 0.
  template <typename Body>
  void Launch(
      const Body& body, int64_t count,
      std::type_identity_t<typename BodyStep<Body>::BindFunction> bind) {
    if (count == 0) return;
    Add(std::make_unique<BodyStep<Body>>(*device_, body, count,
                                         std::move(bind)));
  }
  // Makes output 0 a copy of an input.
  void CopyInput(size_t input);

  std::unique_ptr<Kernel> Build();

 private:
  std::shared_ptr<const Device> device_;
  FunctionCache& functions_;
  PlanTuner& plans_;
  const KernelRequest& request_;
  std::vector<std::unique_ptr<Step>> steps_;
  size_t scratch_size_bytes_ = 0;
  size_t workspace_size_bytes_ = 0;  // of scratch_size_bytes_
  size_t reread_bytes_ = 0;
  bool shares_elements_ = false;
  bool selects_rows_ = false;
};

}  // namespace replicant::kernels::cuda
