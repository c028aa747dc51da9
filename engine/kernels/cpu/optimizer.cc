#include "engine/graph/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"

// Updates of all parameters in one sweep: each thread goes once through its
// part of the elements and of their slots.
//
// A node that makes a part of an update (graph::UpdatePart) goes through its
// share of the chunks. Chunks, and their results, are the same for every number
// of parts, threads and gradients.
namespace replicant::kernels::cpu {
namespace {

// A part of one tensor of a group.
struct Chunk {
  int64_t size() const { return end - begin; }

  size_t tensor;
  int64_t begin, end;
};

// The elements of tensors 0 .. count of a node, in pieces of equal work: all of
// them, or the node's part of an update.
struct Sweep {
  // Long enough to hide the call's cost, short enough to balance threads.
  static constexpr int64_t kChunkSize = 4096;

  Sweep(const CpuRequest& request, size_t tensor_count)
      : num_tensors(tensor_count) {
    int64_t size = 0;
    for (size_t i = 0; i < num_tensors; ++i) {
      const int64_t n = request.input(i).shape.num_elements();
      for (int64_t begin = 0; begin < n; begin += kChunkSize) {
        chunks.push_back({i, begin, std::min(n, begin + kChunkSize)});
      }
      size += n;
    }
    const auto part = graph::UpdatePartOf(request.node.attributes);
    const auto edge = [&](int64_t i) {
      return chunks.begin() +
             static_cast<int64_t>(chunks.size()) * i / part.count;
    };
    chunks = std::vector<Chunk>(edge(part.index), edge(part.index + 1));
    num_threads = ThreadsFor(request.num_threads, 4 * size / part.count);
  }

  // Calls visit(chunk) for all chunks, on all threads.
  template <typename Visit>
  void Run(const Visit& visit) const {
    ParallelFor(num_threads, static_cast<int64_t>(chunks.size()),
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    visit(chunks[static_cast<size_t>(i)]);
                  }
                });
  }

  size_t num_tensors;
  std::vector<Chunk> chunks;
  int num_threads = 1;
};

size_t CountOf(const CpuRequest& request) {
  return static_cast<size_t>(request.node.attributes.Int("count"));
}

// The gradients of a node's parameters.
class Gradients {
 public:
  explicit Gradients(const CpuRequest& request)
      : part_(graph::UpdatePartOf(request.node.attributes)),
        first_(*graph::FirstGradient(request.node)),
        stride_(CountOf(request)) {}

  // The gradient of a chunk: in place, or summed into `sum`
  // [Sweep::kChunkSize].
  const float* Of(const Operands& operands, const Chunk& chunk,
                  float* sum) const {
    const auto gradient = [&](int64_t j) {
      return operands.input<float>(first_ + static_cast<size_t>(j) * stride_ +
                                   chunk.tensor) +
             chunk.begin;
    };
    const float* g = gradient(0);
    if (part_.num_gradients == 1) return g;
    const int64_t n = chunk.size();
    for (int64_t j = 1; j < part_.num_gradients; ++j) {
      const float* added = gradient(j);
#pragma omp simd
      for (int64_t e = 0; e < n; ++e) sum[e] = g[e] + added[e];
      g = sum;
    }
    const auto factor = static_cast<float>(part_.gradient_factor);
#pragma omp simd
    for (int64_t e = 0; e < n; ++e) sum[e] = g[e] * factor;
    return sum;
  }

  // The index after all groups.
  size_t first_scalar() const {
    return first_ + static_cast<size_t>(part_.num_gradients) * stride_;
  }

 private:
  const graph::UpdatePart part_;
  const size_t first_;
  const size_t stride_;
};

struct SgdConstants {
  float rate, scale, momentum, weight_decay;
  bool nesterov;
};

// `u` is null without momentum. The constants are passed by value, because g++
// does not vectorise a loop whose stores might change them.
void UpdateSgd(SgdConstants k, int64_t n, float* p, float* u, const float* g) {
  if (u == nullptr) {
#pragma omp simd
    for (int64_t e = 0; e < n; ++e) {
      p[e] -= k.rate * (k.scale * g[e] + k.weight_decay * p[e]);
    }
    return;
  }
  const float gradient_share = k.nesterov ? 1.0f : 0.0f;
  const float momentum_share = k.nesterov ? k.momentum : 1.0f;
#pragma omp simd
  for (int64_t e = 0; e < n; ++e) {
    const float d = k.scale * g[e] + k.weight_decay * p[e];
    u[e] = k.momentum * u[e] + d;
    p[e] -= k.rate * (gradient_share * d + momentum_share * u[e]);
  }
}

// inputs: parameters, momenta (if any), gradients, learning rate, scale
std::unique_ptr<Kernel> MakeSgd(const CpuRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const Sweep sweep(request, CountOf(request));
  const Gradients gradients(request);
  SgdConstants constants{
      .momentum = static_cast<float>(attributes.Float("momentum")),
      .weight_decay = static_cast<float>(attributes.Float("weight_decay")),
      .nesterov = attributes.Bool("nesterov")};
  return MakeHostKernel(request, [=](const Operands& operands) {
    const size_t n = sweep.num_tensors;
    const bool has_momentum = constants.momentum != 0.0f;
    const size_t scalars = gradients.first_scalar();
    SgdConstants k = constants;
    k.rate = operands.input<float>(scalars)[0];
    k.scale = operands.input<float>(scalars + 1)[0];
    sweep.Run([&](const Chunk& chunk) {
      const auto at = [&](size_t output) {
        return operands.output<float>(output) + chunk.begin;
      };
      const size_t i = chunk.tensor;
      float sum[Sweep::kChunkSize];
      UpdateSgd(k, chunk.size(), at(i), has_momentum ? at(n + i) : nullptr,
                gradients.Of(operands, chunk, sum));
    });
  });
}

struct AdamConstants {
  float scale, beta1, beta2, epsilon;
  // 1 - beta, from doubles: 1.0f - 0.999f is wrong by 1e-5 of itself
  float one_minus_beta1, one_minus_beta2;
  // 1 - rate * weight decay
  float keep;
  // rate / (1 - beta1^t), 1 / (1 - beta2^t)
  float step_size, second_correction;
};

// By value, as above.
void UpdateAdam(AdamConstants k, int64_t n, float* p, float* m, float* v,
                const float* g) {
#pragma omp simd
  for (int64_t e = 0; e < n; ++e) {
    const float d = k.scale * g[e];
    const float first = k.beta1 * m[e] + k.one_minus_beta1 * d;
    const float second = k.beta2 * v[e] + k.one_minus_beta2 * d * d;
    m[e] = first;
    v[e] = second;
    p[e] = k.keep * p[e] -
           k.step_size * first /
               (std::sqrt(second * k.second_correction) + k.epsilon);
  }
}

// inputs: parameters, m, v, gradients, learning rate, scale, step
std::unique_ptr<Kernel> MakeAdam(const CpuRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const Sweep sweep(request, CountOf(request));
  const Gradients gradients(request);
  const double beta1 = attributes.Float("beta1");
  const double beta2 = attributes.Float("beta2");
  const double epsilon = attributes.Float("epsilon");
  const double weight_decay = attributes.Float("weight_decay");
  return MakeHostKernel(request, [=](const Operands& operands) {
    const size_t n = sweep.num_tensors;
    const size_t scalars = gradients.first_scalar();
    const auto rate = static_cast<double>(operands.input<float>(scalars)[0]);
    const double t =
        static_cast<double>(operands.input<int64_t>(scalars + 2)[0]) + 1.0;
    const AdamConstants k{
        .scale = operands.input<float>(scalars + 1)[0],
        .beta1 = static_cast<float>(beta1),
        .beta2 = static_cast<float>(beta2),
        .epsilon = static_cast<float>(epsilon),
        .one_minus_beta1 = static_cast<float>(1.0 - beta1),
        .one_minus_beta2 = static_cast<float>(1.0 - beta2),
        .keep = static_cast<float>(1.0 - rate * weight_decay),
        .step_size = static_cast<float>(rate / (1.0 - std::pow(beta1, t))),
        .second_correction =
            static_cast<float>(1.0 / (1.0 - std::pow(beta2, t)))};
    sweep.Run([&](const Chunk& chunk) {
      const auto at = [&](size_t output) {
        return operands.output<float>(output) + chunk.begin;
      };
      const size_t i = chunk.tensor;
      float sum[Sweep::kChunkSize];
      UpdateAdam(k, chunk.size(), at(i), at(n + i), at(2 * n + i),
                 gradients.Of(operands, chunk, sum));
    });
  });
}

// inputs: targets, sources, rate
std::unique_ptr<Kernel> MakeMovingAverage(const CpuRequest& request) {
  const Sweep sweep(request, CountOf(request));
  return MakeHostKernel(request, [sweep](const Operands& operands) {
    const size_t n = sweep.num_tensors;
    const float rate = operands.input<float>(2 * n)[0];
    // at rate 0 an infinite source must not reach the target
    if (rate == 0.0f) return;
    sweep.Run([&](const Chunk& chunk) {
      float* target = operands.output<float>(chunk.tensor);
      const float* source = operands.input<float>(n + chunk.tensor);
      if (rate == 1.0f) {
        std::copy(source + chunk.begin, source + chunk.end,
                  target + chunk.begin);
        return;
      }
      const float keep = 1.0f - rate;
#pragma omp simd
      for (int64_t e = chunk.begin; e < chunk.end; ++e) {
        target[e] = keep * target[e] + rate * source[e];
      }
    });
  });
}

std::unique_ptr<Kernel> MakeGlobalNorm(const CpuRequest& request) {
  const Sweep sweep(request, request.node.inputs.size());
  // one sum per chunk, added in order: the same result for any number of
  // threads
  std::vector<float> sums(sweep.chunks.size());
  return MakeHostKernel(
      request, [sweep, sums](const Operands& operands) mutable {
        sweep.Run([&](const Chunk& chunk) {
          const float* x = operands.input<float>(chunk.tensor);
          float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
          for (int64_t e = chunk.begin; e < chunk.end; ++e) sum += x[e] * x[e];
          sums[static_cast<size_t>(&chunk - sweep.chunks.data())] = sum;
        });
        double total = 0.0;
        for (const float sum : sums) total += static_cast<double>(sum);
        operands.output<float>()[0] = static_cast<float>(std::sqrt(total));
      });
}

}  // namespace

void AddOptimizerKernels(CpuKernelTable& table) {
  table["SgdUpdate"] = {.make = &MakeSgd, .why_not = &WhyNotF32};
  table["AdamUpdate"] = {.make = &MakeAdam, .why_not = &WhyNotF32};
  table["MovingAverageUpdate"] = {.make = &MakeMovingAverage,
                                  .why_not = &WhyNotF32};
  table["GlobalNorm"] = {.make = &MakeGlobalNorm, .why_not = &WhyNotF32};
}

}  // namespace replicant::kernels::cpu
