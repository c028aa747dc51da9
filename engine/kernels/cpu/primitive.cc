#include "engine/kernels/cpu/primitive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {
namespace {

using graph::ScalarOp;

// oneDNN's algorithm for a scalar op, with its parameters.
struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha = 0.0f;
  float beta = 0.0f;
};

std::optional<Eltwise> EltwiseOf(
    const graph::ScalarProgram::Instruction& instruction) {
  const auto p = static_cast<float>(instruction.p);
  const auto q = static_cast<float>(instruction.q);
  switch (instruction.op) {
    case ScalarOp::kRelu:
      return Eltwise{dnnl::algorithm::eltwise_relu};
    case ScalarOp::kLeakyRelu:
      return Eltwise{dnnl::algorithm::eltwise_relu, p};
    case ScalarOp::kElu:
      return Eltwise{dnnl::algorithm::eltwise_elu, p};
    case ScalarOp::kTanh:
      return Eltwise{dnnl::algorithm::eltwise_tanh};
    case ScalarOp::kSigmoid:
      return Eltwise{dnnl::algorithm::eltwise_logistic};
    case ScalarOp::kSquare:
      return Eltwise{dnnl::algorithm::eltwise_square};
    case ScalarOp::kAbs:
      return Eltwise{dnnl::algorithm::eltwise_abs};
    case ScalarOp::kAffine:
      return Eltwise{dnnl::algorithm::eltwise_linear, p, q};
    default:
      return std::nullopt;
  }
}

// Whether the processor has this instruction set. The number of a set includes
// the bits of the sets that it contains.
bool Has(dnnl_cpu_isa_t isa) {
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) &
          static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

// Intel's processors without AMX run the instructions of AVX512_BF16 at half
// the rate of f32 instructions, AMD's processors at twice that rate.
bool IsBf16Faster() {
  return Has(dnnl_cpu_isa_avx512_core_bf16) &&
         (Has(dnnl_cpu_isa_avx512_core_amx) || __builtin_cpu_is("intel") == 0);
}

// How a product is divided: `step` of `size` rows or columns of the result, or
// of the positions, at a time. The dimension of each operand that is cut; -1:
// it is whole.
struct Cut {
  int64_t size, step;
  int a, b, bias, result;
};

Cut CutOf(const dnnl::memory::dims& a, const dnnl::memory::dims& b,
          int num_threads) {
  const bool has_positions = a.size() == 3;
  const int64_t rows = a[a.size() - 2];
  const int64_t columns = b.back();
  Cut cut{};
  if (has_positions) {
    cut = {.size = a[0], .a = 0, .b = 0, .bias = -1, .result = 0};
  } else if (rows >= columns) {
    cut = {.size = rows, .a = 0, .b = -1, .bias = -1, .result = 0};
  } else {
    cut = {.size = columns, .a = -1, .b = 1, .bias = 1, .result = 1};
  }
  const int64_t work =
      (has_positions ? a[0] : 1) * rows * columns * a.back() / 8;
  const int threads = ThreadsFor(num_threads, work);
  const int64_t parts = threads == 1 ? 1 : kPartsPerThread * threads;
  cut.step = std::max<int64_t>(1, (cut.size + parts - 1) / parts);
  // whole vectors of the library's loops
  constexpr int64_t kVectors = 16;
  if (!has_positions) {
    cut.step = (cut.step + kVectors - 1) / kVectors * kVectors;
  }
  return cut;
}

}  // namespace

SingleThreaded::SingleThreaded() : old_(omp_get_max_threads()) {
  if (old_ != 1) omp_set_num_threads(1);
}
SingleThreaded::~SingleThreaded() {
  if (old_ != 1) omp_set_num_threads(old_);
}

const dnnl::engine& Engine() {
  // a handle of the host, without state that users could share
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

Primitive::Primitive(dnnl::primitive primitive,
                     const std::vector<Argument>& arguments)
    : primitive_(std::move(primitive)), stream_(Engine()) {
  for (const auto& [argument, desc] : arguments) {
    // an argument that a primitive does not need (an empty scratchpad) has size
    // 0
    memories_.push_back(dnnl::memory(desc, Engine(), DNNL_MEMORY_NONE));
    arguments_.push_back({argument, memories_.back().get()});
  }
}

void Primitive::Bind(int argument, const std::byte* data) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].arg != argument) continue;
    // the library has one handle type for reading and writing
    memories_[i].set_data_handle(const_cast<std::byte*>(data));
    return;
  }
  REPLICANT_CHECK(false, "no argument {}", argument);
}

void Primitive::Run() {
  const SingleThreaded single;
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
      arguments_.data());
  if (status != dnnl_success) {
    throw DeviceError(fmt::format(
        "cpu: oneDNN: a primitive failed with status {} (dnnl_status_t)",
        static_cast<int>(status)));
  }
}

Reorder::Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                 int64_t max_pieces) {
  if (from == to) return;
  const auto add = [&](const dnnl::memory::desc& source,
                       const dnnl::memory::desc& target) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::library);
    const SingleThreaded single;
    const dnnl::reorder::primitive_desc description(Engine(), source, Engine(),
                                                    target, attributes);
    pieces_.emplace_back(dnnl::reorder(description),
                         std::vector<Primitive::Argument>{
                             {DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}});
  };
  const int64_t count = to.get_dims()[0];
  // blocks of the dimension cannot be cut
  int64_t block = 1;
  bool can_be_cut = to.get_format_kind() == dnnl::memory::format_kind::blocked;
  if (can_be_cut) {
    const dnnl::memory::dims sizes = to.get_inner_blks();
    const dnnl::memory::dims dimensions = to.get_inner_idxs();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (dimensions[i] == 0) block *= sizes[i];
    }
    can_be_cut = count % block == 0;
  }
  const int64_t num_blocks = count / block;
  const int64_t num_pieces = std::min(num_blocks, max_pieces);
  if (!can_be_cut || num_pieces < 2) {
    add(from, to);
    return;
  }
  dnnl::memory::dims dims = to.get_dims();
  dnnl::memory::dims begin(dims.size(), 0);
  for (int64_t i = 1; i <= num_pieces; ++i) {
    const int64_t end = num_blocks * i / num_pieces * block;
    dims[0] = end - begin[0];
    add(from.submemory_desc(dims, begin), to.submemory_desc(dims, begin));
    begin[0] = end;
  }
}

void Reorder::Bind(const std::byte* from, std::byte* to) {
  for (Primitive& piece : pieces_) {
    piece.Bind(DNNL_ARG_FROM, from);
    piece.Bind(DNNL_ARG_TO, to);
  }
}

void Reorder::Run(int num_threads) {
  ParallelForEach(num_threads, num_pieces(),
                  [&](int /*thread*/, int64_t piece) { RunPiece(piece); });
}

int64_t ReorderPieces(size_t size_bytes, int num_threads) {
  const int threads =
      ThreadsFor(num_threads, static_cast<int64_t>(size_bytes / 16));
  return threads == 1 ? 1 : kPartsPerThread * threads;
}

std::string LayoutText(const dnnl::memory::desc& desc) {
  return fmt::format(
      "type {} dims {} padded {} strides {} blocks {} of {}",
      static_cast<int>(desc.get_data_type()), fmt::join(desc.get_dims(), "x"),
      fmt::join(desc.get_padded_dims(), "x"),
      fmt::join(desc.get_strides(), "x"), fmt::join(desc.get_inner_blks(), "x"),
      fmt::join(desc.get_inner_idxs(), "x"));
}

dnnl::memory::desc RowMajor(const Shape& shape, dnnl::memory::data_type type) {
  const Shape::Strides strides = shape.RowMajorStrides();
  const auto dims = shape.dims();
  return {dnnl::memory::dims(dims.begin(), dims.end()), type,
          dnnl::memory::dims(strides.begin(), strides.begin() + shape.rank())};
}

dnnl::memory::desc Matrix(int64_t rows, int64_t columns, bool is_transposed,
                          DType dtype) {
  return {{rows, columns},
          ComputeTypeOf(dtype),
          is_transposed ? dnnl::memory::dims{1, rows}
                        : dnnl::memory::dims{columns, 1}};
}

dnnl::memory::data_type DataTypeOf(DType dtype) {
  REPLICANT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "{}",
                  DTypeName(dtype));
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32
                              : dnnl::memory::data_type::bf16;
}

dnnl::memory::data_type ComputeTypeOf(DType dtype) {
  return IsBf16Faster() ? DataTypeOf(dtype) : dnnl::memory::data_type::f32;
}

int64_t RowSizeForProduct(int64_t columns) {
  constexpr int64_t kCompeting = 256;
  constexpr int64_t kLine = 16;
  return columns > 0 && columns % kCompeting == 0 &&
                 !Has(dnnl_cpu_isa_avx512_core)
             ? columns + kLine
             : columns;
}

Product::Product(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                 const dnnl::memory::desc& bias,
                 const dnnl::memory::desc& result,
                 const dnnl::primitive_attr& attributes, int num_threads,
                 ScratchLayout* scratch)
    : num_threads_(num_threads) {
  dnnl::memory::desc read_a = a;
  dnnl::memory::desc read_b = b;
  CopyToLongerRows(DNNL_ARG_SRC, 1, b.get_dims().back(), &read_a, scratch);
  CopyToLongerRows(DNNL_ARG_WEIGHTS, 0, a.get_dims().front(), &read_b, scratch);

  const Cut cut = CutOf(a.get_dims(), b.get_dims(), num_threads);
  num_threads_ = static_cast<int>(
      std::min<int64_t>(num_threads, (cut.size + cut.step - 1) / cut.step));
  const SingleThreaded single;
  for (int64_t begin = 0; begin < cut.size; begin += cut.step) {
    Slice& slice = slices_.emplace_back();
    std::vector<Primitive::Argument> arguments;
    const auto add = [&](int argument, const dnnl::memory::desc& whole,
                         int dimension) {
      dnnl::memory::dims dims = whole.get_dims();
      int64_t skipped = 0;
      if (dimension >= 0) {
        // weights may lie in blocks of rows and columns
        for (const int64_t blocked : whole.get_inner_idxs()) {
          REPLICANT_CHECK(blocked != dimension, "dimension {}", dimension);
        }
        const auto d = static_cast<size_t>(dimension);
        dims[d] = std::min(cut.step, cut.size - begin);
        skipped = begin * whole.get_strides()[d];
      }
      slice.offsets.emplace_back(
          argument, static_cast<size_t>(skipped) *
                        dnnl::memory::data_type_size(whole.get_data_type()));
      arguments.emplace_back(
          argument,
          whole.submemory_desc(dims, dnnl::memory::dims(dims.size(), 0)));
      return arguments.back().second;
    };
    const auto part_of_a = add(DNNL_ARG_SRC, read_a, cut.a);
    const auto part_of_b = add(DNNL_ARG_WEIGHTS, read_b, cut.b);
    const auto part_of_result = add(DNNL_ARG_DST, result, cut.result);
    dnnl::memory::desc part_of_bias;
    if (!bias.is_zero()) part_of_bias = add(DNNL_ARG_BIAS, bias, cut.bias);
    const dnnl::matmul::primitive_desc description(Engine(), part_of_a,
                                                   part_of_b, part_of_bias,
                                                   part_of_result, attributes);
    const dnnl::memory::desc scratchpad = description.scratchpad_desc();
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, scratchpad);
    scratchpad_size_ = std::max(scratchpad_size_, scratchpad.get_size());
    slice.primitive = Primitive(dnnl::matmul(description), arguments);
  }
  scratchpad_size_ = (scratchpad_size_ + 63) / 64 * 64;
  scratchpad_at_ =
      scratch->Add(static_cast<size_t>(num_threads_) * scratchpad_size_);
}

void Product::CopyToLongerRows(int argument, size_t summed, int64_t num_uses,
                               dnnl::memory::desc* operand,
                               ScratchLayout* scratch) {
  // with fewer uses, or rows 1 KiB apart, the copy does not pay off
  constexpr int64_t kMinUses = 128;
  constexpr int64_t kCompeting = 512;
  if (operand->get_ndims() != 2 || operand->get_dims()[summed] == 1 ||
      num_uses < kMinUses) {
    return;
  }
  dnnl::memory::dims strides = operand->get_strides();
  const int64_t row_size = RowSizeForProduct(strides[summed]);
  if (strides[1 - summed] != 1 || strides[summed] % kCompeting != 0 ||
      row_size == strides[summed]) {
    return;
  }
  strides[summed] = row_size;
  const dnnl::memory::desc longer(operand->get_dims(), operand->get_data_type(),
                                  strides);
  copies_.push_back(
      {.argument = argument,
       .reorder = Reorder(*operand, longer,
                          ReorderPieces(longer.get_size(), num_threads_)),
       .at = scratch->Add(longer.get_size())});
  *operand = longer;
}

void Product::Bind(int argument, const std::byte* data) {
  for (Copy& copy : copies_) {
    if (copy.argument == argument) {
      copy.from = data;
      return;
    }
  }
  BindSlices(argument, data);
}

void Product::BindSlices(int argument, const std::byte* data) {
  for (Slice& slice : slices_) {
    for (const auto& [of, offset] : slice.offsets) {
      if (of == argument) slice.primitive.Bind(argument, data + offset);
    }
  }
}

void Product::BindScratch(const std::byte* scratch) {
  scratchpads_ = scratch + scratchpad_at_;
  for (Copy& copy : copies_) {
    // as in Primitive::Bind()
    auto* to = const_cast<std::byte*>(scratch + copy.at);
    copy.reorder.Bind(copy.from, to);
    BindSlices(copy.argument, to);
  }
}

void Product::Run() {
  for (Copy& copy : copies_) copy.reorder.Run(num_threads_);
  ParallelForEach(num_threads_, static_cast<int64_t>(slices_.size()),
                  [&](int thread, int64_t i) {
                    Primitive& product =
                        slices_[static_cast<size_t>(i)].primitive;
                    product.Bind(DNNL_ARG_SCRATCHPAD,
                                 scratchpads_ + static_cast<size_t>(thread) *
                                                    scratchpad_size_);
                    product.Run();
                  });
}

ConvertedOperand::ConvertedOperand(const graph::TensorType& type,
                                   int num_threads, ScratchLayout* scratch)
    : size_(type.shape.num_elements()),
      size_bytes_(static_cast<int64_t>(type.SizeBytes())),
      num_threads_(ThreadsFor(num_threads, size_)),
      is_converted_(ComputeTypeOf(type.dtype) != DataTypeOf(type.dtype)) {
  if (is_converted_) {
    offset_ = scratch->Add(static_cast<size_t>(size_) * sizeof(float));
  }
}

std::byte* ConvertedOperand::Bind(const std::byte* stored, std::byte* scratch) {
  // one type for reading and writing, as in Primitive
  stored_ = const_cast<std::byte*>(stored);
  floats_ = is_converted_ ? scratch + offset_ : stored_;
  return floats_;
}

std::byte* ConvertedOperand::At(int64_t part) const {
  return is_converted_ ? floats_ : stored_ + part * size_bytes_;
}

void ConvertedOperand::Load(int64_t part) const {
  if (!is_converted_) return;
  ParallelFor(
      num_threads_, size_, [&](int /*thread*/, int64_t begin, int64_t end) {
        ToFloats(
            reinterpret_cast<const BFloat16*>(stored_) + part * size_ + begin,
            static_cast<size_t>(end - begin),
            reinterpret_cast<float*>(floats_) + begin);
      });
}

void ConvertedOperand::Store(int64_t part) const {
  if (!is_converted_) return;
  ParallelFor(
      num_threads_, size_, [&](int /*thread*/, int64_t begin, int64_t end) {
        ToBF16(reinterpret_cast<const float*>(floats_) + begin,
               static_cast<size_t>(end - begin),
               reinterpret_cast<BFloat16*>(stored_) + part * size_ + begin);
      });
}

dnnl::primitive_attr AttributesOf(const graph::Attributes& attributes) {
  dnnl::primitive_attr result;
  result.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (attributes.Has("activation")) {
    const auto eltwise =
        EltwiseOf(attributes.Program("activation").instructions[0]);
    dnnl::post_ops post_ops;
    post_ops.append_eltwise(eltwise->algorithm, eltwise->alpha, eltwise->beta);
    result.set_post_ops(post_ops);
  }
  return result;
}

bool CanBePostOp(const graph::ScalarProgram& activation) {
  return activation.instructions.size() == 1 &&
         activation.instructions[0].dtype != DType::kBool &&
         EltwiseOf(activation.instructions[0]).has_value();
}

}  // namespace replicant::kernels::cpu
