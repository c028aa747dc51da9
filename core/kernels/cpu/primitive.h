#pragma once

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "core/graph/attributes.h"
#include "core/tensor/shape.h"

namespace replicant::kernels::cpu {

// The CPU as oneDNN sees it.
const dnnl::engine& Engine();

// A oneDNN primitive with its arguments, prepared once, run without an
// allocation of ours.
class Primitive {
 public:
  // A memory argument: DNNL_ARG_..., and how it lies.
  using Argument = std::pair<int, dnnl::memory::desc>;

  Primitive() = default;
  Primitive(dnnl::primitive primitive, const std::vector<Argument>& arguments);

  // Whether there is anything to run.
  bool is_valid() const { return !arguments_.empty(); }
  // Fixes where the argument lies; it was named to the constructor (checked).
  void Bind(int argument, const std::byte* data);
  // Throws DeviceError if the library refuses.
  void Run();

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  // what the library's C interface takes
  std::vector<dnnl_exec_arg_t> arguments_;
};

// Copies between two layouts of one tensor; not valid where they are equal.
Primitive MakeReorder(const dnnl::memory::desc& from,
                      const dnnl::memory::desc& to);

// Row-major, of any rank.
dnnl::memory::desc RowMajor(const Shape& shape);

// Attributes that every primitive here has: scratch memory from the caller,
// and the node's activation as a post-op (CanBePostOp()).
dnnl::primitive_attr AttributesOf(const graph::Attributes& attributes);

// Whether oneDNN can apply the activation after a primitive.
bool CanBePostOp(const graph::ScalarProgram& activation);

// Sizes of parts of a kernel's scratch memory, one after the other.
class ScratchLayout {
 public:
  // Adds a part; returns its offset, a multiple of 64.
  size_t Add(size_t size_bytes) {
    const size_t offset = size_bytes_;
    size_bytes_ += (size_bytes + 63) / 64 * 64;
    return offset;
  }
  size_t size_bytes() const { return size_bytes_; }

 private:
  size_t size_bytes_ = 0;
};

}  // namespace replicant::kernels::cpu
