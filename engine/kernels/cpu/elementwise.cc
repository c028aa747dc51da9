#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/tile_program.h"
#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {
namespace {

constexpr auto kTileSize = static_cast<int64_t>(TileProgram::kTileSize);

bool FitsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kU8 ||
         dtype == DType::kBool;
}

// Whether floats represent all values of the node. Other nodes (counters,
// indices, f64) run in double, one element at a time.
bool RunsInTiles(const KernelRequest& request) {
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    if (!FitsFloat(request.input(i).dtype)) return false;
  }
  return TileProgram::CanRun(request.node.attributes.Program("program"));
}

// An input of an elementwise node, broadcast to the output's shape.
class BroadcastInput {
 public:
  BroadcastInput(const graph::TensorType& input, const Shape& shape)
      : dtype_(input.dtype) {
    const Shape::Strides strides = input.shape.RowMajorStrides();
    const int missing = shape.rank() - input.shape.rank();
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int own = axis - missing;
      // an axis of size 1, or none, repeats its elements
      const bool repeats = own < 0 || input.shape[own] == 1;
      const int64_t stride = repeats ? 0 : strides[static_cast<size_t>(own)];
      AddAxis(shape[axis], stride);
    }
    if (axes_.empty()) axes_.push_back({.size = 1, .stride = 0});
    is_scalar_ = input.shape.num_elements() == 1;
    is_dense_ = axes_.size() == 1 && axes_[0].stride == 1;
  }

  bool is_scalar() const { return is_scalar_; }
  // Whether its runs can be read in place.
  bool is_direct() const { return is_dense_ && dtype_ == DType::kF32; }
  // Whether a result of `dtype` may overwrite it, run by run.
  bool CanBecome(DType dtype) const { return is_dense_ && dtype_ == dtype; }

  // Writes elements begin .. begin + n of the broadcast input as floats.
  void Load(const std::byte* data, int64_t begin, int64_t n, float* out) const {
    const Axis& inner = axes_.back();
    int64_t done = 0;
    // a short vector that repeats: load its first period, and copy it
    const bool is_period =
        axes_.size() == 2 && axes_[0].stride == 0 && 2 * inner.size < n;
    const int64_t num_loaded = is_period ? inner.size : n;
    while (done < num_loaded) {
      const int64_t at = begin + done;
      const int64_t column = at % inner.size;
      const int64_t run = std::min(num_loaded - done, inner.size - column);
      const int64_t offset =
          OuterOffset(at / inner.size) + column * inner.stride;
      LoadRun(data, offset, inner.stride, run, out + done);
      done += run;
    }
    for (; done < n; done += std::min(done, n - done)) {
      std::copy_n(out, std::min(done, n - done), out + done);
    }
  }

 private:
  struct Axis {
    int64_t size;
    int64_t stride;
  };

  // Merges the axis with the one before it if both are walked as one.
  void AddAxis(int64_t size, int64_t stride) {
    if (size == 1) return;
    if (!axes_.empty() && axes_.back().stride == stride * size) {
      axes_.back() = {axes_.back().size * size, stride};
    } else {
      axes_.push_back({size, stride});
    }
  }

  int64_t OuterOffset(int64_t row) const {
    int64_t offset = 0;
    for (size_t axis = axes_.size() - 1; axis-- > 0;) {
      offset += row % axes_[axis].size * axes_[axis].stride;
      row /= axes_[axis].size;
    }
    return offset;
  }

  template <typename T>
  static void LoadElements(const T* data, int64_t stride, int64_t n,
                           float* out) {
    if (stride == 0) {
      std::fill_n(out, n, static_cast<float>(*data));
    } else if (stride == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(data[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        out[i] = static_cast<float>(data[i * stride]);
      }
    }
  }

  void LoadRun(const std::byte* data, int64_t offset, int64_t stride, int64_t n,
               float* out) const {
    if (dtype_ == DType::kF32) {
      LoadElements(reinterpret_cast<const float*>(data) + offset, stride, n,
                   out);
    } else if (dtype_ == DType::kBF16 && stride == 1) {
      ToFloats(reinterpret_cast<const BFloat16*>(data) + offset,
               static_cast<size_t>(n), out);
    } else if (dtype_ == DType::kBF16) {
      LoadElements(reinterpret_cast<const BFloat16*>(data) + offset, stride, n,
                   out);
    } else {
      LoadElements(reinterpret_cast<const uint8_t*>(data) + offset, stride, n,
                   out);
    }
  }

  DType dtype_;
  std::vector<Axis> axes_;
  bool is_scalar_ = false;
  bool is_dense_ = false;
};

class ElementwiseKernel : public Kernel {
 public:
  explicit ElementwiseKernel(const CpuRequest& request)
      : program_(request.node.attributes.Program("program")),
        size_(request.output().shape.num_elements()),
        output_dtype_(request.output().dtype) {
    for (size_t i = 0; i < request.node.inputs.size(); ++i) {
      inputs_.emplace_back(request.input(i), request.output().shape);
      can_share_.push_back(inputs_.back().CanBecome(output_dtype_));
    }
    const auto& program = request.node.attributes.Program("program");
    is_copy_ = program.instructions.size() == 1 &&
               program.instructions[0].op == graph::ScalarOp::kCopy;
    num_threads_ =
        ThreadsFor(request.num_threads,
                   size_ * static_cast<int64_t>(program.instructions.size()));
    // runs of the inputs, the program's intermediate values, and the result
    floats_per_thread_ = program_.workspace_size() +
                         (inputs_.size() + 1) * TileProgram::kTileSize;
  }

  size_t scratch_size_bytes() const override {
    return static_cast<size_t>(num_threads_) * floats_per_thread_ *
           sizeof(float);
  }
  bool CanShare(int input, int output) const override {
    return output == 0 && can_share_[static_cast<size_t>(input)];
  }
  void Bind(const KernelBindings& bindings) override { bindings_ = bindings; }

  void Launch(Stream& /*stream*/) override {
    const int64_t num_tiles = (size_ + kTileSize - 1) / kTileSize;
    ParallelFor(num_threads_, num_tiles,
                [&](int thread, int64_t begin, int64_t end) {
                  RunTiles(thread, begin, end);
                });
  }

 private:
  void RunTiles(int thread, int64_t begin_tile, int64_t end_tile) const {
    if (begin_tile == end_tile) return;
    float* workspace = reinterpret_cast<float*>(bindings_.scratch) +
                       static_cast<size_t>(thread) * floats_per_thread_;
    float* runs = workspace + program_.workspace_size();
    float* result = runs + inputs_.size() * TileProgram::kTileSize;
    std::array<const float*, graph::ScalarProgram::kMaxInputs> operands{};
    for (size_t k = 0; k < inputs_.size(); ++k) {
      float* run = runs + k * TileProgram::kTileSize;
      if (inputs_[k].is_scalar()) {
        inputs_[k].Load(bindings_.inputs[k], 0, 1, run);
        std::fill_n(run, TileProgram::kTileSize, *run);
      }
      operands[k] = run;
    }
    for (int64_t tile = begin_tile; tile < end_tile; ++tile) {
      const int64_t begin = tile * kTileSize;
      const int64_t n = std::min(kTileSize, size_ - begin);
      for (size_t k = 0; k < inputs_.size(); ++k) {
        if (inputs_[k].is_scalar()) continue;
        if (inputs_[k].is_direct()) {
          operands[k] =
              reinterpret_cast<const float*>(bindings_.inputs[k]) + begin;
        } else {
          inputs_[k].Load(bindings_.inputs[k], begin, n,
                          runs + k * TileProgram::kTileSize);
        }
      }
      if (output_dtype_ == DType::kF32) {
        program_.Run(operands.data(),
                     reinterpret_cast<float*>(bindings_.outputs[0]) + begin,
                     static_cast<size_t>(n), workspace);
        continue;
      }
      const float* computed = result;
      if (is_copy_) {
        computed = operands[0];
      } else {
        program_.Run(operands.data(), result, static_cast<size_t>(n),
                     workspace);
      }
      if (output_dtype_ == DType::kBF16) {
        ToBF16(computed, static_cast<size_t>(n),
               reinterpret_cast<BFloat16*>(bindings_.outputs[0]) + begin);
        continue;
      }
      auto* out = reinterpret_cast<uint8_t*>(bindings_.outputs[0]) + begin;
      for (int64_t i = 0; i < n; ++i) out[i] = computed[i] != 0.0f ? 1 : 0;
    }
  }

  TileProgram program_;
  int64_t size_;
  DType output_dtype_;
  std::vector<BroadcastInput> inputs_;
  std::vector<bool> can_share_;
  // converts to another dtype, and computes nothing
  bool is_copy_ = false;
  int num_threads_ = 1;
  size_t floats_per_thread_ = 0;
  KernelBindings bindings_;
};

std::unique_ptr<Kernel> MakeElementwise(const CpuRequest& request) {
  if (RunsInTiles(request)) return std::make_unique<ElementwiseKernel>(request);
  return MakeCommonKernel(request);
}

}  // namespace

void AddElementwiseKernels(CpuKernelTable& table) {
  for (int i = 0; i < graph::kNumScalarOps; ++i) {
    table[graph::ScalarOpName(static_cast<graph::ScalarOp>(i))] = {
        .make = &MakeElementwise};
  }
  table["FusedElementwise"] = {.make = &MakeElementwise};
}

}  // namespace replicant::kernels::cpu
