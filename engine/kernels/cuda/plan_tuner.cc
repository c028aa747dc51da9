#include "engine/kernels/cuda/plan_tuner.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/kernels/cuda/launch_timer.h"

namespace replicant::kernels::cuda {
namespace {

// Candidates that are timed. PyTorch takes 10 by default
// (torch.backends.cudnn.benchmark_limit); the libraries list some 30.
constexpr int kMaxCandidates = 16;

const char* KindName(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::kForward:
      return "forward";
    case ConvolutionKind::kInputGradient:
      return "input gradient";
    case ConvolutionKind::kWeightGradient:
      break;
  }
  return "weight gradient";
}

const char* EpilogueName(bool has_bias, bool has_relu) {
  if (has_bias) return has_relu ? ", bias, relu" : ", bias";
  return has_relu ? ", relu" : "";
}

// All fields of a problem.
std::string ToText(const ConvolutionProblem& p) {
  return fmt::format(
      "convolution {}, x [{},{},{},{}], w [{},{},{},{}], y [{},{},{},{}], "
      "stride {}, padding {}, {}{}{}",
      KindName(p.kind), p.b, p.h, p.w, p.c, p.o, p.kh, p.kw, p.c, p.b, p.yh,
      p.yw, p.o, p.stride, p.padding, DTypeName(p.dtype),
      p.allows_tf32 ? " as tf32" : "", EpilogueName(p.has_bias, p.has_relu));
}

std::string ToText(const MatMulProblem& p) {
  return fmt::format("{} products of a{} [{},{}] and b{} [{},{}], {}{} to {}{}",
                     p.batch, p.transpose_a ? "^T" : "", p.m, p.k,
                     p.transpose_b ? "^T" : "", p.k, p.n, DTypeName(p.in),
                     p.allows_tf32 ? " as tf32" : "", DTypeName(p.out),
                     EpilogueName(p.has_bias, p.has_relu));
}

size_t BytesOf(int64_t count, DType dtype) {
  return static_cast<size_t>(count) * DTypeSize(dtype);
}

// Bytes of a problem's operands: three tensors and a bias.
std::array<size_t, 4> SizesOf(const ConvolutionProblem& p) {
  return {BytesOf(p.b * p.h * p.w * p.c, p.dtype),
          BytesOf(p.o * p.kh * p.kw * p.c, p.dtype),
          BytesOf(p.b * p.yh * p.yw * p.o, p.dtype),
          p.has_bias ? BytesOf(p.o, p.dtype) : 0};
}

std::array<size_t, 4> SizesOf(const MatMulProblem& p) {
  return {BytesOf(p.batch * p.m * p.k, p.in),
          BytesOf(p.batch * p.k * p.n, p.in),
          BytesOf(p.batch * p.m * p.n, p.out),
          p.has_bias ? BytesOf(p.n, p.out) : 0};
}

ConvolutionOperands OperandsOf(const ConvolutionProblem& /*problem*/,
                               const std::array<CUdeviceptr, 5>& addresses) {
  const auto [x, w, y, bias, workspace] = addresses;
  return {.x = x, .w = w, .y = y, .bias = bias, .workspace = workspace};
}

MatMulOperands OperandsOf(const MatMulProblem& /*problem*/,
                          const std::array<CUdeviceptr, 5>& addresses) {
  const auto [a, b, c, bias, workspace] = addresses;
  return {.a = a, .b = b, .c = c, .bias = bias, .workspace = workspace};
}

// Device memory of a problem's operands and of a workspace. Where a size is 0,
// so is the address.
class ScratchOperands {
 public:
  explicit ScratchOperands(const Device& device) : device_(device) {}
  ~ScratchOperands() {
    for (const CUdeviceptr address : addresses_) {
      if (address != 0) device_.driver_for_cleanup().MemFree(address);
    }
  }
  ScratchOperands(const ScratchOperands&) = delete;
  ScratchOperands& operator=(const ScratchOperands&) = delete;

  // False if the device has too little memory. Throws DeviceError.
  bool Allocate(const std::array<size_t, 5>& sizes_bytes) {
    for (size_t i = 0; i < sizes_bytes.size(); ++i) {
      if (sizes_bytes[i] == 0) continue;
      const CUresult result =
          device_.driver().MemAlloc(&addresses_[i], sizes_bytes[i]);
      if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
      device_.Check(result, "cuMemAlloc");
    }
    return true;
  }
  const std::array<CUdeviceptr, 5>& addresses() const { return addresses_; }

 private:
  const Device& device_;
  std::array<CUdeviceptr, 5> addresses_{};
};

}  // namespace

// Leaves a plan in `chosen`, or null if the library has none.
template <typename Library, typename Problem, typename LibraryPlan>
std::optional<PlanCache::Entry> PlanTuner::Tune(
    Library& library, const Problem& problem,
    std::unique_ptr<LibraryPlan>* chosen) {
  auto candidates = library.Candidates(problem, kMaxCandidates);
  if (candidates.empty()) return std::nullopt;
  size_t workspace_bytes = 0;
  std::vector<std::string> names;
  for (const auto& candidate : candidates) {
    workspace_bytes =
        std::max(workspace_bytes, candidate->workspace_size_bytes());
    names.push_back(candidate->name());
  }
  // the library's choice, unless another is better
  *chosen = std::move(candidates[0]);
  if (candidates.size() == 1) return std::nullopt;
  const std::string text = ToText(problem);
  const auto [first, second, third, bias] = SizesOf(problem);
  ScratchOperands scratch(*device_);
  if (!scratch.Allocate({first, second, third, bias, workspace_bytes})) {
    spdlog::warn(
        "{}: not enough memory to tune {}: its operands and workspace take {} "
        "bytes; using the library's choice",
        device_->name(), text, first + second + third + bias + workspace_bytes);
    return std::nullopt;
  }
  const auto operands = OperandsOf(problem, scratch.addresses());
  const std::vector<std::optional<double>> times_us =
      TimeAll(text, names, [&](size_t i, CUstream stream) {
        (i == 0 ? *chosen : candidates[i])->Launch(operands, stream);
      });
  const auto best = std::ranges::min_element(
      times_us, {}, [](const std::optional<double>& time_us) {
        return time_us.value_or(std::numeric_limits<double>::infinity());
      });
  if (!*best) return std::nullopt;
  const auto number = static_cast<size_t>(best - times_us.begin());
  if (number > 0) *chosen = std::move(candidates[number]);
  const PlanCache::Entry entry{.plan = names[number],
                               .time_us = **best,
                               .first_time_us = times_us[0].value_or(0.0)};
  Note(text, entry, /*is_first=*/number == 0);
  return entry;
}

template <typename Library, typename Problem>
auto PlanTuner::PlanBy(Library& library, const Problem& problem) {
  // the context is current for the library
  static_cast<void>(device_->driver());
  if (cache_ == nullptr) return library.Plan(problem);
  decltype(library.Plan(problem)) chosen;
  cache_->FindOrTune(
      fmt::format("{}, {}: {}", device_->Description(), library.version(),
                  ToText(problem)),
      [&](const PlanCache::Entry& entry) {
        // the library may have changed within its version
        chosen = library.PlanNamed(problem, entry.plan);
        if (chosen == nullptr) return false;
        const MutexLock lock(mutex_);
        ++summary_.num_found;
        return true;
      },
      [&] { return Tune(library, problem, &chosen); });
  return chosen;
}

std::unique_ptr<ConvolutionPlan> PlanTuner::Plan(
    const ConvolutionProblem& problem) {
  return PlanBy(*device_->libraries().convolution, problem);
}

std::unique_ptr<MatMulPlan> PlanTuner::Plan(const MatMulProblem& problem) {
  return PlanBy(*device_->libraries().matmul, problem);
}

std::vector<std::optional<double>> PlanTuner::TimeAll(
    const std::string& problem, const std::vector<std::string>& names,
    const std::function<void(size_t candidate, CUstream)>& launch) {
  const auto start = std::chrono::steady_clock::now();
  LaunchTimer timer(device_);
  std::vector<std::optional<double>> times_us;
  double best_us = std::numeric_limits<double>::infinity();
  std::string why;
  int num_failed = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    times_us.push_back(timer.MedianUs(
        [&](CUstream stream) { launch(i, stream); }, best_us, &why));
    if (times_us.back()) {
      best_us = std::min(best_us, *times_us.back());
      continue;
    }
    ++num_failed;
    spdlog::info("{}: {} is left out for {}: {}", device_->name(), names[i],
                 problem, why);
  }
  if (num_failed == static_cast<int>(names.size())) {
    spdlog::warn(
        "{}: all {} candidates for {} failed, the last with: {}; using the "
        "library's choice",
        device_->name(), num_failed, problem, why);
  }
  const MutexLock lock(mutex_);
  summary_.num_failed += num_failed;
  summary_.time += std::chrono::steady_clock::now() - start;
  return times_us;
}

void PlanTuner::Note(const std::string& problem, const PlanCache::Entry& entry,
                     bool is_first) {
  const MutexLock lock(mutex_);
  ++summary_.num_tuned;
  if (is_first) ++summary_.num_kept;
  const double gain =
      entry.time_us > 0.0 ? entry.first_time_us / entry.time_us : 1.0;
  if (gain > summary_.largest_gain) {
    summary_.largest_gain = gain;
    summary_.largest_gain_of = problem;
  }
}

void PlanTuner::Report() {
  const Summary done = [&] {
    const MutexLock lock(mutex_);
    return std::exchange(summary_, {});
  }();
  if (done.num_tuned == 0 && done.num_found == 0) return;
  const std::string place =
      cache_->file().empty() ? "memory" : cache_->file().string();
  if (done.num_tuned == 0) {
    spdlog::info("{}: took {} tuned plans from {}", device_->name(),
                 done.num_found, place);
    return;
  }
  spdlog::info(
      "{}: tuned {} problems in {:.1f} s and took {} from {}; {} keep the "
      "library's choice, {} candidates failed, the largest gain is {:.2f} "
      "times{}",
      device_->name(), done.num_tuned, done.time.count(), done.num_found, place,
      done.num_kept, done.num_failed, done.largest_gain,
      done.largest_gain_of.empty() ? "" : ": " + done.largest_gain_of);
}

}  // namespace replicant::kernels::cuda
