#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

// How the families of reference kernels present themselves.
namespace replicant::kernels::reference {

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

// What a kernel is made from; used while compiling only.
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
// Decodes a node into the function that runs it.
using MakeFunction = RunFunction (*)(const KernelRequest&);

// By the op's name.
using KernelTable = std::map<std::string_view, MakeFunction>;

// One per family; each adds its rows.
void AddElementwiseKernels(KernelTable& table);
void AddMatMulKernels(KernelTable& table);
void AddConvKernels(KernelTable& table);
void AddPoolKernels(KernelTable& table);
void AddNormKernels(KernelTable& table);
void AddLossKernels(KernelTable& table);
void AddIndexingKernels(KernelTable& table);
void AddOptimizerKernels(KernelTable& table);
void AddReduceKernels(KernelTable& table);
void AddShapeKernels(KernelTable& table);

}  // namespace replicant::kernels::reference
