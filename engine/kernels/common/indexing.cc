#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/rng.h"
#include "engine/kernels/common/element.h"
#include "engine/kernels/common/host_kernel.h"

// Kernels that select or make elements by index: gather, one-hot, image shift,
// stacks of frames, random numbers.
namespace replicant::kernels {
namespace {

int64_t LoadIndex(const std::byte* data, DType dtype, int64_t i) {
  return dtype == DType::kI32 ? reinterpret_cast<const int32_t*>(data)[i]
                              : reinterpret_cast<const int64_t*>(data)[i];
}

RunFunction MakeGather(const KernelRequest& request) {
  const graph::TensorType& table = request.input(0);
  const DType index_type = request.input(1).dtype;
  const int64_t count = request.input(1).shape.num_elements();
  const size_t row_bytes =
      static_cast<size_t>(table.shape.WithoutLeading().num_elements()) *
      DTypeSize(table.dtype);
  return [table, index_type, count, row_bytes](const Operands& operands) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = LoadIndex(operands.inputs[1], index_type, i);
      std::byte* to = operands.outputs[0] + static_cast<size_t>(i) * row_bytes;
      if (row < 0 || row >= table.shape[0]) {
        std::memset(to, 0, row_bytes);
      } else {
        std::memcpy(to,
                    operands.inputs[0] + static_cast<size_t>(row) * row_bytes,
                    row_bytes);
      }
    }
  };
}

// inputs: dy, indices
RunFunction MakeScatterAdd(const KernelRequest& request) {
  const graph::TensorType& output = request.output();
  const DType index_type = request.input(1).dtype;
  const int64_t count = request.input(1).shape.num_elements();
  const int64_t row_size = output.shape.WithoutLeading().num_elements();
  std::vector<double> sums(static_cast<size_t>(output.shape.num_elements()));
  return [output, index_type, count, row_size,
          sums](const Operands& operands) mutable {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = LoadIndex(operands.inputs[1], index_type, i);
      if (row < 0 || row >= output.shape[0]) continue;
      for (int64_t k = 0; k < row_size; ++k) {
        sums[static_cast<size_t>(row * row_size + k)] +=
            Load(operands.inputs[0], output.dtype, i * row_size + k);
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      Store(operands.outputs[0], output.dtype, static_cast<int64_t>(i),
            sums[i]);
    }
  };
}

RunFunction MakeOneHot(const KernelRequest& request) {
  const DType index_type = request.input(0).dtype;
  const int64_t count = request.input(0).shape.num_elements();
  const int64_t depth = request.node.attributes.Int("depth");
  const DType dtype = request.output().dtype;
  return [index_type, count, depth, dtype](const Operands& operands) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = LoadIndex(operands.inputs[0], index_type, i);
      for (int64_t k = 0; k < depth; ++k) {
        Store(operands.outputs[0], dtype, i * depth + k,
              k == index ? 1.0 : 0.0);
      }
    }
  };
}

// inputs: x [B, H, W, C], offsets [B, 2]
RunFunction MakeRandomShift(const KernelRequest& request) {
  const Shape x = request.input(0).shape;
  const size_t pixel_bytes =
      static_cast<size_t>(x[3]) * DTypeSize(request.input(0).dtype);
  return [x, pixel_bytes](const Operands& operands) {
    const int32_t* offsets = operands.input<int32_t>(1);
    std::byte* to = operands.outputs[0];
    for (int64_t n = 0; n < x[0]; ++n) {
      for (int64_t i = 0; i < x[1]; ++i) {
        for (int64_t j = 0; j < x[2]; ++j, to += pixel_bytes) {
          const int64_t row =
              std::clamp<int64_t>(i + offsets[2 * n], 0, x[1] - 1);
          const int64_t column =
              std::clamp<int64_t>(j + offsets[2 * n + 1], 0, x[2] - 1);
          const int64_t from = (n * x[1] + row) * x[2] + column;
          std::memcpy(
              to, operands.inputs[0] + static_cast<size_t>(from) * pixel_bytes,
              pixel_bytes);
        }
      }
    }
  };
}

// inputs: frames [N, F], slots [..., K]
RunFunction MakeGatherStacks(const KernelRequest& request) {
  const Shape frames = request.input(0).shape;
  const Shape slots = request.input(1).shape;
  const int64_t depth = slots[slots.rank() - 1];
  const graph::Attributes& attributes = request.node.attributes;
  const int64_t begin = attributes.Int("begin");
  const int64_t pixels = attributes.Int("pixels");
  const int64_t channels = attributes.Int("channels");
  const int64_t num_stacks = slots.num_elements() / depth;
  return [=](const Operands& operands) {
    const auto* table = operands.input<uint8_t>(0);
    const auto* slot = operands.input<int32_t>(1);
    auto* y = operands.output<uint8_t>();
    for (int64_t n = 0; n < num_stacks; ++n) {
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t k = 0; k < depth; ++k) {
          const int64_t row = slot[n * depth + k];
          const bool is_inside = row >= 0 && row < frames[0];
          for (int64_t c = 0; c < channels; ++c) {
            *y++ = is_inside ? table[row * frames[1] + begin + p * channels + c]
                             : uint8_t{0};
          }
        }
      }
    }
  };
}

// Two 64-bit words of one element's block: see graph/ops/random.h.
struct RandomPlan {
  uint64_t key;
  int64_t first_row, rows, row_size;

  std::array<uint64_t, 2> Words(int64_t step, int64_t row,
                                int64_t element) const {
    const auto s = static_cast<uint64_t>(step);
    const auto block = Philox4x32(
        {static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32),
         static_cast<uint32_t>(first_row + row),
         static_cast<uint32_t>(element)},
        {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    return {block[0] | uint64_t{block[1]} << 32,
            block[2] | uint64_t{block[3]} << 32};
  }
};

double ToUnit(uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

double UniformOf(std::array<uint64_t, 2> words, DType dtype) {
  // 24 bits are exact in f32; more could round to 1
  return dtype == DType::kF64 ? ToUnit(words[0])
                              : static_cast<double>(words[0] >> 40) * 0x1p-24;
}

double NormalOf(std::array<uint64_t, 2> words) {
  // 1 - u is in (0, 1], where the logarithm is finite
  const double radius = std::sqrt(-2.0 * std::log(1.0 - ToUnit(words[0])));
  return radius * std::cos(2.0 * std::numbers::pi * ToUnit(words[1]));
}

template <typename Draw>
RunFunction MakeRandom(const KernelRequest& request, const Draw& draw) {
  const graph::TensorType output = request.output();
  const graph::Attributes& attributes = request.node.attributes;
  const RandomPlan plan{
      .key = static_cast<uint64_t>(attributes.Int("key")),
      .first_row = attributes.Int("first_row"),
      .rows = output.shape[0],
      .row_size = output.shape.WithoutLeading().num_elements()};
  return [output, plan, draw](const Operands& operands) {
    const int64_t step = operands.input<int64_t>(0)[0];
    const int64_t offset =
        operands.inputs.size() > 1 ? operands.input<int64_t>(1)[0] : 0;
    for (int64_t row = 0; row < plan.rows; ++row) {
      for (int64_t e = 0; e < plan.row_size; ++e) {
        Store(operands.outputs[0], output.dtype, row * plan.row_size + e,
              draw(plan.Words(step, offset + row, e)));
      }
    }
  };
}

RunFunction MakeRandomUniform(const KernelRequest& request) {
  const DType dtype = request.output().dtype;
  return MakeRandom(request, [dtype](std::array<uint64_t, 2> words) {
    return UniformOf(words, dtype);
  });
}

RunFunction MakeRandomNormal(const KernelRequest& request) {
  return MakeRandom(request, &NormalOf);
}

RunFunction MakeRandomInt(const KernelRequest& request) {
  const auto low = static_cast<double>(request.node.attributes.Int("low"));
  const auto high = static_cast<double>(request.node.attributes.Int("high"));
  return MakeRandom(request, [low, high](std::array<uint64_t, 2> words) {
    return low + std::floor(ToUnit(words[0]) * (high - low));
  });
}

}  // namespace

void AddIndexingKernels(HostKernelTable& table) {
  table.emplace("Gather", &MakeGather);
  table.emplace("ScatterAdd", &MakeScatterAdd);
  table.emplace("OneHot", &MakeOneHot);
  table.emplace("RandomShift", &MakeRandomShift);
  table.emplace("GatherStacks", &MakeGatherStacks);
  table.emplace("RandomUniform", &MakeRandomUniform);
  table.emplace("RandomNormal", &MakeRandomNormal);
  table.emplace("RandomInt", &MakeRandomInt);
}

}  // namespace replicant::kernels
