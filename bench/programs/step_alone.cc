#include "bench/programs/step_alone.h"

#include <cstddef>
#include <utility>

#include "base/rng.h"
#include "base/tensor/host_tensor.h"
#include "bench/programs/random_batch.h"

namespace replicant::learner {
namespace {

// An input that never changes.
class FixedInput : public runtime::ResidentInput {
 public:
  FixedInput(const graph::TensorType& type, kernels::Backend& backend,
             RandomStream& random)
      : type_(type), buffer_(backend.Allocate(type.SizeBytes())) {
    HostTensor values(type.dtype, type.shape);
    FillInput(values.mutable_view(), random);
    const auto stream = backend.CreateStream();
    stream->CopyToDevice(buffer_->data(), values.bytes().data(),
                         values.size_bytes());
    stream->Synchronize();
  }

  const graph::TensorType& type() const override { return type_; }
  std::byte* data() override { return buffer_->data(); }
  void Update(kernels::Stream& /*stream*/) override {}

 private:
  const graph::TensorType type_;
  const std::unique_ptr<kernels::Buffer> buffer_;
};

runtime::PlanSpec SpecOf(const probe::StepGraph& step) {
  runtime::PlanSpec spec{.updates = step.updates};
  for (const auto* list : {&step.losses, &step.outputs}) {
    for (const probe::NamedOutput& named : *list) {
      spec.outputs.push_back(named.output);
    }
  }
  return spec;
}

}  // namespace

StepAlone::StepAlone(probe::StepGraph step, kernels::Backend& backend,
                     runtime::CompileOptions options)
    : step_(std::move(step)),
      spec_(SpecOf(step_)),
      variables_(backend, /*seed=*/1) {
  RandomStream random(1, "batch");
  for (const graph::Node& node : step_.graph->nodes()) {
    if (node.op != &graph::InputOp()) continue;
    inputs_.push_back(
        std::make_unique<FixedInput>(node.output_type(), backend, random));
    options.residents[node.name] = inputs_.back().get();
  }
  plan_ = std::make_unique<runtime::Executor>(*step_.graph, spec_, variables_,
                                              options);
}

}  // namespace replicant::learner
