#pragma once

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/attributes.h"
#include "core/graph/tensor_type.h"
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

// Equal for equal layouts of blocks, and for no others.
std::string LayoutText(const dnnl::memory::desc& desc);

// Row-major, of any rank.
dnnl::memory::desc RowMajor(
    const Shape& shape,
    dnnl::memory::data_type type = dnnl::memory::data_type::f32);

// A matrix [rows, columns] in ComputeTypeOf(dtype), which may be stored the
// other way round.
dnnl::memory::desc Matrix(int64_t rows, int64_t columns, bool is_transposed,
                          DType dtype);

// A dtype as oneDNN calls it: f32 or bf16 (checked).
dnnl::memory::data_type DataTypeOf(DType dtype);
// In what a primitive is to take operands of this dtype. bf16 only where the
// processor multiplies it (AVX512_BF16 and later): elsewhere oneDNN's
// primitives of bf16 take five times as long as those of f32, and converting in
// front and behind gives the same result, bf16 products being exact in f32.
dnnl::memory::data_type ComputeTypeOf(DType dtype);

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

// An operand of a primitive that takes it in ComputeTypeOf() its dtype: where
// it lies, or converted in a part of the kernel's scratch memory.
class ConvertedOperand {
 public:
  // Adds the part to `scratch`, if one is needed.
  ConvertedOperand(const graph::TensorType& type, int num_threads,
                   ScratchLayout* scratch);

  // Where the primitive finds it, or puts it.
  std::byte* Bind(const std::byte* stored, std::byte* scratch);
  // Converts what is stored for the primitive. `part`: the operand is that many
  // times `type` further on.
  void Load(int64_t part = 0) const;
  // Stores what the primitive has made.
  void Store(int64_t part = 0) const;

 private:
  int64_t size_;
  int num_threads_;
  bool is_converted_;
  size_t offset_ = 0;
  std::byte* stored_ = nullptr;
  std::byte* floats_ = nullptr;
};

}  // namespace replicant::kernels::cpu
