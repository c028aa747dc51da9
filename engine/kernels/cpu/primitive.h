#pragma once

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/shape.h"
#include "engine/graph/attributes.h"
#include "engine/graph/tensor_type.h"

namespace replicant::kernels::cpu {

// oneDNN's CPU engine.
const dnnl::engine& Engine();

// While the object lives, oneDNN makes and runs primitives for its thread
// alone: their loops would have a part for each thread of OpenMP and wait for
// the slowest, so the kernels divide the work (base/parallel.h).
class SingleThreaded {
 public:
  SingleThreaded();
  ~SingleThreaded();
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int old_;  // OpenMP's setting of the thread
};

// A oneDNN primitive with its arguments. It is prepared once and runs on the
// calling thread, without an allocation by our code.
class Primitive {
 public:
  // A memory argument: DNNL_ARG_..., and its layout.
  using Argument = std::pair<int, dnnl::memory::desc>;

  Primitive() = default;
  Primitive(dnnl::primitive primitive, const std::vector<Argument>& arguments);
  // a copy would share the arguments
  Primitive(Primitive&&) = default;
  Primitive& operator=(Primitive&&) = default;

  // Whether there is anything to run.
  bool is_valid() const { return !arguments_.empty(); }
  // Fixes the address of an argument that was given to the constructor
  // (checked).
  void Bind(int argument, const std::byte* data);
  // Throws DeviceError if the library refuses.
  void Run();

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  // in the form of the library's C interface
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A copy between two layouts of one tensor, in pieces along its first
// dimension.
class Reorder {
 public:
  // Not valid.
  Reorder() = default;
  // Not valid if the layouts are equal. At most `max_pieces`, of about equal
  // size; one if the layout cannot be cut.
  Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to,
          int64_t max_pieces);

  bool is_valid() const { return !pieces_.empty(); }
  int64_t num_pieces() const { return static_cast<int64_t>(pieces_.size()); }
  void Bind(const std::byte* from, std::byte* to);
  void RunPiece(int64_t piece) { pieces_[static_cast<size_t>(piece)].Run(); }
  // All pieces, on so many threads.
  void Run(int num_threads);

 private:
  std::vector<Primitive> pieces_;
};

// Pieces of a tensor of so many bytes for a team of `num_threads`.
int64_t ReorderPieces(size_t size_bytes, int num_threads);

// A text that is equal for equal blocked layouts only.
std::string LayoutText(const dnnl::memory::desc& desc);

// Row-major, of any rank.
dnnl::memory::desc RowMajor(
    const Shape& shape,
    dnnl::memory::data_type type = dnnl::memory::data_type::f32);

// A matrix [rows, columns] in ComputeTypeOf(dtype), which may be stored
// transposed.
dnnl::memory::desc Matrix(int64_t rows, int64_t columns, bool is_transposed,
                          DType dtype);

// oneDNN's name of a dtype: f32 or bf16 (checked).
dnnl::memory::data_type DataTypeOf(DType dtype);
// The type in which a primitive takes operands of this dtype. It is bf16 only
// if the processor multiplies bf16 faster than f32: with AVX512_BF16, on an
// Intel with AMX as well. Elsewhere oneDNN's bf16 primitives take twice (Intel
// without AMX) to five times as long as f32 ones, and converting before and
// after gives the same result, because bf16 products are exact in f32.
dnnl::memory::data_type ComputeTypeOf(DType dtype);

// The attributes of every primitive here: scratch memory from the caller, and
// the node's activation as a post-op (CanBePostOp()).
dnnl::primitive_attr AttributesOf(const graph::Attributes& attributes);

// Whether oneDNN can apply the activation after a primitive.
bool CanBePostOp(const graph::ScalarProgram& activation);

// The parts of a kernel's scratch memory, one after the other.
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

// The best distance in floats between rows of an f32 matrix whose rows a
// product adds up, such as b. It is `columns` except on AVX2, where the
// library's product takes up to twice as long if the rows are a multiple of 1
// KiB apart, because they compete for few sets of the first-level cache.
int64_t RowSizeForProduct(int64_t columns);

// A product of matrices, or of one matrix per position: a b, plus a bias. Its
// threads compute rows, columns or positions of the result. Copies an operand
// whose rows compete for the cache to longer rows.
class Product {
 public:
  Product() = default;
  // `bias` may be an empty description. Adds the library's scratch memory to
  // `scratch`.
  Product(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
          const dnnl::memory::desc& bias, const dnnl::memory::desc& result,
          const dnnl::primitive_attr& attributes, int num_threads,
          ScratchLayout* scratch);

  // Fixes the address of an operand: DNNL_ARG_SRC is a, DNNL_ARG_WEIGHTS b.
  void Bind(int argument, const std::byte* data);
  // Fixes the address of the library's scratch memory within the kernel's.
  void BindScratch(const std::byte* scratch);
  void Run();

 private:
  // A copy of an operand, in the kernel's scratch memory.
  struct Copy {
    int argument;
    Reorder reorder;
    const std::byte* from = nullptr;
    size_t at;
  };
  // A part of the result, with the bytes before each operand's part.
  struct Slice {
    Primitive primitive;
    std::vector<std::pair<int, size_t>> offsets;
  };

  // Copies an operand, if that pays off. `summed`: its dimension that the
  // product sums over; `num_uses`: of an element.
  void CopyToLongerRows(int argument, size_t summed, int64_t num_uses,
                        dnnl::memory::desc* operand, ScratchLayout* scratch);
  void BindSlices(int argument, const std::byte* data);

  int num_threads_ = 1;
  std::vector<Slice> slices_;
  // the library's, one of each thread
  size_t scratchpad_at_ = 0;
  size_t scratchpad_size_ = 0;
  const std::byte* scratchpads_ = nullptr;
  std::vector<Copy> copies_;
};

// An operand of a primitive that takes it in ComputeTypeOf() its dtype: in
// place, or converted in a part of the kernel's scratch memory.
class ConvertedOperand {
 public:
  // Adds the part to `scratch`, if one is needed.
  ConvertedOperand(const graph::TensorType& type, int num_threads,
                   ScratchLayout* scratch);

  // The address that the primitive reads or writes.
  std::byte* Bind(const std::byte* stored, std::byte* scratch);
  // The address for a part of a longer operand: the one that begins after
  // `part` times the size of `type`.
  std::byte* At(int64_t part) const;
  // Converts the stored operand for the primitive.
  void Load(int64_t part = 0) const;
  // Stores the primitive's result.
  void Store(int64_t part = 0) const;

 private:
  int64_t size_, size_bytes_;
  int num_threads_;
  bool is_converted_;
  size_t offset_ = 0;
  std::byte* stored_ = nullptr;
  std::byte* floats_ = nullptr;
};

}  // namespace replicant::kernels::cpu
