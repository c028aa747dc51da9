#pragma once

#include <memory>
#include <string>

#include "engine/kernels/backend.h"

namespace replicant::kernels {

// The oracle: every op as plain loops on one thread, in double where precision
// matters. It is slow; every other backend must match its results.
//
// Types: f32, f64 and bf16 for every floating op. Sums are made in double and
// rounded once. Layouts: row-major only.
class ReferenceBackend : public Backend {
 public:
  ReferenceBackend();
  ~ReferenceBackend() override;

  std::string_view name() const override { return "reference"; }
  std::string device() const override { return "reference"; }
  bool is_host_memory() const override { return true; }
  const graph::TargetInfo& target() const override { return *target_; }
  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override;
  std::unique_ptr<Stream> CreateStream() override;
  std::unique_ptr<Event> CreateEvent() override;
  std::unique_ptr<Kernel> CompileKernel(
      const graph::Graph& graph, const graph::Node& node,
      std::span<const InputTraits> inputs = {}) override;

 private:
  std::unique_ptr<graph::TargetInfo> target_;
};

}  // namespace replicant::kernels
