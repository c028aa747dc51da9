#include "engine/kernels/cpu/primitive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

}  // namespace

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
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
      arguments_.data());
  if (status != dnnl_success) {
    throw DeviceError(fmt::format(
        "cpu: oneDNN: a primitive failed with status {} (dnnl_status_t)",
        static_cast<int>(status)));
  }
}

Primitive MakeReorder(const dnnl::memory::desc& from,
                      const dnnl::memory::desc& to) {
  if (from == to) return {};
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::library);
  const dnnl::reorder::primitive_desc description(Engine(), from, Engine(), to,
                                                  attributes);
  return {dnnl::reorder(description),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
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
                 const dnnl::primitive_attr& attributes,
                 ScratchLayout* scratch) {
  dnnl::memory::desc read_a = a;
  dnnl::memory::desc read_b = b;
  CopyToLongerRows(DNNL_ARG_SRC, 1, b.get_dims().back(), &read_a, scratch);
  CopyToLongerRows(DNNL_ARG_WEIGHTS, 0, a.get_dims().front(), &read_b, scratch);
  const dnnl::matmul::primitive_desc description(Engine(), read_a, read_b, bias,
                                                 result, attributes);
  const dnnl::memory::desc scratchpad = description.scratchpad_desc();
  std::vector<Primitive::Argument> arguments = {
      {DNNL_ARG_SRC, read_a},
      {DNNL_ARG_WEIGHTS, read_b},
      {DNNL_ARG_DST, result},
      {DNNL_ARG_SCRATCHPAD, scratchpad}};
  if (!bias.is_zero()) arguments.emplace_back(DNNL_ARG_BIAS, bias);
  primitive_ = Primitive(dnnl::matmul(description), arguments);
  scratchpad_at_ = scratch->Add(scratchpad.get_size());
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
  copies_.push_back({.argument = argument,
                     .reorder = MakeReorder(*operand, longer),
                     .at = scratch->Add(longer.get_size())});
  *operand = longer;
}

void Product::Bind(int argument, const std::byte* data) {
  for (Copy& copy : copies_) {
    if (copy.argument == argument) {
      return copy.reorder.Bind(DNNL_ARG_FROM, data);
    }
  }
  primitive_.Bind(argument, data);
}

void Product::BindScratch(const std::byte* scratch) {
  primitive_.Bind(DNNL_ARG_SCRATCHPAD, scratch + scratchpad_at_);
  for (Copy& copy : copies_) {
    copy.reorder.Bind(DNNL_ARG_TO, scratch + copy.at);
    primitive_.Bind(copy.argument, scratch + copy.at);
  }
}

void Product::Run() {
  for (Copy& copy : copies_) copy.reorder.Run();
  primitive_.Run();
}

ConvertedOperand::ConvertedOperand(const graph::TensorType& type,
                                   int num_threads, ScratchLayout* scratch)
    : size_(type.shape.num_elements()),
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
