#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"

// Kernels that are plain functions on host memory: all of the reference
// backend, and the ops that other CPU backends do not make faster.
namespace replicant::kernels {

// The operands of one launch, by number.
struct Operands {
  template <typename T>
  const T* input(size_t i) const {
    return reinterpret_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* output(size_t i = 0) const {
    return reinterpret_cast<T*>(outputs[i]);
  }

  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
};

// The arguments of a kernel's maker; valid while compiling only.
struct KernelRequest {
  const graph::TensorType& input(size_t i) const {
    return graph.type(node.inputs[i]);
  }
  const graph::TensorType& output(size_t i = 0) const {
    return node.outputs[i];
  }

  const graph::Graph& graph;
  const graph::Node& node;
};

// Computes the outputs; allocates nothing.
using RunFunction = std::function<void(const Operands&)>;
// Decodes a node into its function.
using MakeRunFunction = RunFunction (*)(const KernelRequest&);

// Rows by op name.
using HostKernelTable = std::map<std::string_view, MakeRunFunction>;

// Families that every CPU backend may use. They take any dtype and run on one
// thread, one element at a time. Each function adds its rows.
void AddElementwiseKernels(HostKernelTable& table);
void AddIndexingKernels(HostKernelTable& table);
void AddMomentsKernels(HostKernelTable& table);
void AddReduceKernels(HostKernelTable& table);
void AddShapeKernels(HostKernelTable& table);

// The kernel that runs `run` on the operands of `request`. Its output 0 may
// take the memory of an input if the op works element by element.
std::unique_ptr<Kernel> MakeHostKernel(const KernelRequest& request,
                                       RunFunction run);

// Computes a node whose inputs have values (TargetInfo::Evaluate()). Returns
// false, having written nothing, if the table lacks the op.
bool EvaluateOnHost(const HostKernelTable& table, const KernelRequest& request,
                    std::span<const TensorView> inputs,
                    std::span<const MutableTensorView> outputs);

}  // namespace replicant::kernels
