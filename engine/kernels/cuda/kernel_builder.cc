#include "engine/kernels/cuda/kernel_builder.h"

#include <algorithm>

#include "base/check.h"

namespace replicant::kernels::cuda {
namespace {

constexpr int64_t kThreadsPerBlock = 256;
// Beyond this number of blocks, a thread computes several elements.
constexpr int64_t kMaxBlocks = 1 << 20;
// Alignment of the driver's allocations, which libraries may rely on.
constexpr size_t kWorkspaceAlignment = 256;

size_t RoundUp(size_t size, size_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

class StepKernel : public Kernel {
 public:
  StepKernel(std::shared_ptr<const Device> device, const KernelRequest& request,
             std::vector<std::unique_ptr<Step>> steps,
             size_t scratch_size_bytes, size_t workspace_size_bytes,
             size_t reread_bytes, bool shares_elements, bool selects_rows)
      : device_(std::move(device)),
        steps_(std::move(steps)),
        scratch_size_bytes_(scratch_size_bytes),
        workspace_size_bytes_(workspace_size_bytes),
        reread_bytes_(reread_bytes),
        selects_rows_(selects_rows) {
    for (size_t i = 0; i < request.node.inputs.size(); ++i) {
      const graph::TensorType& type = request.input(i);
      input_sizes_.push_back(type.SizeBytes());
      can_share_.push_back(
          // broadcasting with as many elements keeps their order
          shares_elements &&
          type.shape.num_elements() == request.output().shape.num_elements() &&
          DTypeSize(type.dtype) == DTypeSize(request.output().dtype));
    }
    for (const graph::TensorType& type : request.node.outputs) {
      output_sizes_.push_back(type.SizeBytes());
    }
  }

  size_t scratch_size_bytes() const override { return scratch_size_bytes_; }
  bool CanShare(int input, int output) const override {
    return output == 0 && can_share_[static_cast<size_t>(input)];
  }
  bool CanRecord() const override { return true; }
  KernelDescription Describe() const override {
    KernelDescription description{
        .reread_bytes = reread_bytes_,
        .scratch_bytes = scratch_size_bytes_ - workspace_size_bytes_};
    for (const auto* sizes : {&input_sizes_, &output_sizes_}) {
      for (const size_t size : *sizes) description.operand_bytes += size;
    }
    if (selects_rows_ && input_sizes_[0] > output_sizes_[0]) {
      description.operand_bytes -= input_sizes_[0] - output_sizes_[0];
    }
    for (const auto& step : steps_) {
      if (step->IsEmpty()) continue;
      description.launches.push_back(step->Describe());
    }
    return description;
  }

  void Bind(const KernelBindings& bindings) override {
    ranges_ = {};
    const auto add = [](std::vector<MemoryRange>& ranges, const void* address,
                        size_t size_bytes) {
      if (size_bytes > 0) ranges.push_back({AddressOf(address), size_bytes});
    };
    for (size_t i = 0; i < input_sizes_.size(); ++i) {
      add(ranges_.reads, bindings.inputs[i], input_sizes_[i]);
    }
    for (size_t i = 0; i < output_sizes_.size(); ++i) {
      add(ranges_.writes, bindings.outputs[i], output_sizes_[i]);
    }
    add(ranges_.reads, bindings.scratch, scratch_size_bytes_);
    add(ranges_.writes, bindings.scratch, scratch_size_bytes_);
    for (const auto& step : steps_) step->Bind(bindings, ranges_);
  }
  void Launch(Stream& stream) override {
    static_cast<void>(device_->driver());
    for (const auto& step : steps_) step->Launch(*device_, HandleOf(stream));
  }

 private:
  const std::shared_ptr<const Device> device_;
  const std::vector<std::unique_ptr<Step>> steps_;
  const size_t scratch_size_bytes_;
  const size_t workspace_size_bytes_;
  const size_t reread_bytes_;
  const bool selects_rows_;
  std::vector<size_t> input_sizes_;
  std::vector<size_t> output_sizes_;
  std::vector<bool> can_share_;
  OperandRanges ranges_;
};

class CopyStep : public Step {
 public:
  CopyStep(size_t input, size_t size_bytes)
      : input_(input), size_bytes_(size_bytes) {}

  void Bind(const KernelBindings& bindings,
            const OperandRanges& /*ranges*/) override {
    from_ = AddressOf(bindings.inputs[input_]);
    to_ = AddressOf(bindings.outputs[0]);
  }
  void Launch(const Device& device, CUstream stream) override {
    if (IsEmpty()) return;
    device.Check(device.libraries().driver->MemcpyDtoDAsync(
                     to_, from_, size_bytes_, stream),
                 "cuMemcpyDtoDAsync");
  }
  // an output that took the input's memory needs no copy
  bool IsEmpty() const override { return from_ == to_; }
  LaunchDescription Describe() const override {
    return {.kind = LaunchDescription::Kind::kCopy, .name = "copy"};
  }

 private:
  const size_t input_;
  const size_t size_bytes_;
  CUdeviceptr from_ = 0;
  CUdeviceptr to_ = 0;
};

}  // namespace

KernelLaunch LaunchOf(CUfunction function, int64_t count, bool is_row) {
  const int64_t threads = is_row ? count * Warp::kSize : count;
  const int64_t blocks = (threads + kThreadsPerBlock - 1) / kThreadsPerBlock;
  return {.function = function,
          .num_blocks = static_cast<unsigned>(std::min(blocks, kMaxBlocks)),
          .threads_per_block = static_cast<unsigned>(kThreadsPerBlock),
          .count = count};
}

size_t KernelBuilder::AddScratch(size_t size_bytes) {
  const size_t offset = scratch_size_bytes_;
  scratch_size_bytes_ = RoundUp(offset + size_bytes, Backend::kAlignment);
  return offset;
}

size_t KernelBuilder::AddWorkspace(size_t size_bytes) {
  const size_t before = scratch_size_bytes_;
  scratch_size_bytes_ = RoundUp(before, kWorkspaceAlignment);
  const size_t offset = AddScratch(size_bytes);
  workspace_size_bytes_ += scratch_size_bytes_ - before;
  return offset;
}

void KernelBuilder::CopyInput(size_t input) {
  const size_t size_bytes = output().SizeBytes();
  if (size_bytes > 0) Add(std::make_unique<CopyStep>(input, size_bytes));
}

std::unique_ptr<Kernel> KernelBuilder::Build() {
  return std::make_unique<StepKernel>(
      device_, request_, std::move(steps_), scratch_size_bytes_,
      workspace_size_bytes_, reread_bytes_, shares_elements_, selects_rows_);
}

}  // namespace replicant::kernels::cuda
