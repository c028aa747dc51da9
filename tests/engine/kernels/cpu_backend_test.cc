// Properties of plans on the CPU backend, beyond the values of its ops.
#include "engine/kernels/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/tensor/bfloat16.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"
#include "engine/runtime/executor.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/message_of.h"
#include "tests/support/tensor_values.h"

namespace replicant::kernels {
namespace {

using graph::Graph;
using graph::Output;
using graph::VariableId;
using testing::MessageOf;

// A small training step with every family of kernels: a convolution, dense
// layers, a norm, a loss and Adam, on 8 images of 20 x 20.
class TrainingStep {
 public:
  explicit TrainingStep(int num_threads)
      : backend_(MakeBackend("cpu", {.num_threads = num_threads})),
        store_(*backend_, /*seed=*/3) {
    const Output pixels =
        graph_.Input("pixels", DType::kU8, Shape({8, 20, 20, 9}));
    const Output target = graph_.Input("target", DType::kF32, Shape({8, 11}));
    const nn::Conv2d conv(graph_, "conv", 9, 32, 4, {.stride = 2});
    const nn::Dense hidden(graph_, "hidden", 9 * 9 * 32, 50);
    const nn::LayerNorm norm(graph_, "norm", 50);
    const nn::Dense last(graph_, "last", 50, 11);
    Output x = graph::Relu(conv(graph::NormalizePixels(pixels, DType::kF32)));
    x = graph::Reshape(x, {8, 9 * 9 * 32});
    x = graph::Tanh(norm(hidden(x)));
    const Output loss =
        graph::ReduceMean(graph::SoftmaxCrossEntropy(last(x), target));
    std::vector<VariableId> parameters;
    for (const auto* ids : {&conv.variables(), &hidden.variables(),
                            &norm.variables(), &last.variables()}) {
      parameters.insert(parameters.end(), ids->begin(), ids->end());
    }
    std::vector<Output> values;
    values.reserve(parameters.size());
    for (const VariableId id : parameters) values.push_back(graph_.Read(id));
    const nn::StepCounter step = nn::AddStepCounter(graph_);
    nn::SingleReplica replica(graph_);
    const Output update =
        nn::Adam(replica, "adam", parameters, graph::Gradients(loss, values),
                 graph_.Scalar(1e-2, DType::kF32), step.value);
    plan_.emplace(
        graph_,
        runtime::PlanSpec{.outputs = {loss}, .updates = {update, step.advance}},
        store_);
    Fill("pixels", testing::RandomUniform(DType::kU8, Shape({8, 20, 20, 9}), 0,
                                          255, /*seed=*/1));
    Fill("target", testing::RandomDistribution(DType::kF32, 8, 11, /*seed=*/2));
  }

  void Run() { plan_->Run(); }
  float loss() const { return plan_->output(0).Span<float>()[0]; }
  std::vector<double> Variables() const {
    std::vector<double> all;
    for (const auto& [name, variable] : store_.variables()) {
      const auto values = testing::ToDoubles(store_.Get(name).view());
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  void Fill(const char* name, const HostTensor& value) {
    std::memcpy(plan_->input(name).data(), value.bytes().data(),
                value.size_bytes());
  }

  std::unique_ptr<Backend> backend_;
  runtime::VariableStore store_;
  Graph graph_;
  std::optional<runtime::Executor> plan_;
};

class CpuPlanTest : public ::testing::TestWithParam<int> {};

TEST_P(CpuPlanTest, Learns) {
  TrainingStep step(GetParam());
  step.Run();
  const float first = step.loss();
  for (int i = 0; i < 30; ++i) step.Run();
  // the loss starts near ln 11 = 2.40 and ends near the targets' entropy
  EXPECT_LT(step.loss(), first - 0.05F);
}

TEST_P(CpuPlanTest, TheSameSeedAndThreadsGiveTheSameBits) {
  TrainingStep first(GetParam());
  TrainingStep second(GetParam());
  for (int i = 0; i < 10; ++i) {
    first.Run();
    second.Run();
  }
  EXPECT_EQ(first.loss(), second.loss());
  EXPECT_EQ(first.Variables(), second.Variables());
}

// Between two runs only the threads of the team may differ in what they do.
TEST_P(CpuPlanTest, ARunMakesNoAllocationOfOurs) {
  TrainingStep step(GetParam());
  for (int i = 0; i < 3; ++i) step.Run();
  const testing::AllocationCounts counts = testing::CountAllocations([&] {
    for (int i = 0; i < 10; ++i) step.Run();
  });
  EXPECT_EQ(counts.own, 0);
  // what oneDNN makes is the same small number at every run
  EXPECT_EQ(counts.library % 10, 0);
  RecordProperty("library_allocations_per_run",
                 static_cast<int>(counts.library / 10));
}

// Bytes of memory that are in use, from /proc/self/statm.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

TEST_P(CpuPlanTest, ResidentMemoryIsFlat) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  TrainingStep step(GetParam());
  for (int i = 0; i < 10; ++i) step.Run();
  const int64_t before = ResidentBytes();
  for (int i = 10; i < 1000; ++i) step.Run();
  // a leak of 100 bytes a run would be seen
  EXPECT_LE(ResidentBytes() - before, 100'000);
}

// Where an alarm found the stack pointer of the test's thread.
struct {
  uintptr_t begin;
  uintptr_t end;
  int num_inside;
  int num_elsewhere;
} stack_of_test;

// On a separate stack, so that a failing test overwrites nothing.
void FindStackPointer(int /*signal*/, siginfo_t* /*info*/, void* context) {
  const auto pointer = static_cast<uintptr_t>(
      static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  if (pointer >= stack_of_test.begin && pointer < stack_of_test.end) {
    ++stack_of_test.num_inside;
  } else {
    ++stack_of_test.num_elsewhere;
  }
}

// The threads of this process that may take an alarm, by
// /proc/self/task/THREAD/status.
int NumThreadsWithAlarms() {
  int count = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "status");
    std::string word;
    while (file >> word && word != "SigBlk:") {
    }
    uint64_t blocked = 0;
    file >> std::hex >> blocked;
    if ((blocked >> (SIGALRM - 1) & 1) == 0) ++count;
  }
  return count;
}

// oneDNN's products move the stack pointer to the heap.
TEST_P(CpuPlanTest, SignalsWaitForTheEndOfARun) {
  pthread_attr_t attributes;
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(::pthread_getattr_np(::pthread_self(), &attributes), 0);
  ASSERT_EQ(::pthread_attr_getstack(&attributes, &base, &size), 0);
  ::pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<uintptr_t>(base);
  stack_of_test = {begin, begin + size, 0, 0};
  std::vector<char> handler_stack(1 << 16);
  const stack_t stack{.ss_sp = handler_stack.data(),
                      .ss_flags = 0,
                      .ss_size = handler_stack.size()};
  ASSERT_EQ(::sigaltstack(&stack, nullptr), 0);
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  action.sa_sigaction = &FindStackPointer;
  ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);

  TrainingStep step(GetParam());
  step.Run();
  const itimerval often{{0, 100}, {0, 100}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  for (int i = 0; i < 60; ++i) step.Run();
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  ::signal(SIGALRM, SIG_DFL);
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
  EXPECT_GT(stack_of_test.num_inside, 0);
  EXPECT_EQ(stack_of_test.num_elsewhere, 0);

#ifndef __SANITIZE_THREAD__  // it has a thread that may
  // this one
  EXPECT_EQ(NumThreadsWithAlarms(), 1);
#endif
}

INSTANTIATE_TEST_SUITE_P(Threads, CpuPlanTest, ::testing::Values(1, 2));

// A convolution whose weights the plan does not write keeps them packed.
TEST(CpuBackendTest, KeptWeightsFollowTheVariable) {
  const auto backend = MakeBackend("cpu");
  runtime::VariableStore store(*backend, /*seed=*/3);
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({1, 9, 9, 16}));
  const VariableId w =
      g.AddVariable({.name = "w", .shape = Shape({16, 16, 3, 3})});
  runtime::Executor plan(g, {.outputs = {graph::Conv2d(x, g.Read(w))}}, store);
  for (float& value : plan.input("x").Span<float>()) value = 1.0F;
  // another plan of the same store, which doubles the weights
  Graph other;
  const VariableId same =
      other.AddVariable({.name = "w", .shape = Shape({16, 16, 3, 3})});
  runtime::Executor update(other,
                           {.updates = {graph::MovingAverageUpdate(
                                {same}, {graph::Mul(other.Read(same), 2.0)},
                                other.Scalar(1.0, DType::kF32))}},
                           store);

  const auto first = [&] {
    plan.Run();
    return plan.output(0).Span<float>()[0];
  };
  EXPECT_EQ(first(), 0.0F);
  const HostTensor ones =
      testing::RandomUniform(DType::kF32, Shape({16, 16, 3, 3}), 1, 1, 1);
  store.Set("w", ones.view());
  EXPECT_EQ(first(), 144.0F);
  update.Run();
  EXPECT_EQ(first(), 288.0F);
  EXPECT_EQ(first(), 288.0F);
}

// A NaN must reach the loss. Relu alone is different: see MakeCpuBackend().
TEST(CpuBackendTest, NanPassesFusedActivationsButRelu) {
  const auto backend = MakeBackend("cpu");
  runtime::VariableStore store(*backend, /*seed=*/3);
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({8, 16}));
  const Output w = g.Input("w", DType::kF32, Shape({16, 16}));
  const auto product = [&] {
    return graph::MatMul(x, graph::Mul(w, 2.0), {.transpose_b = true});
  };
  runtime::Executor plan(
      g,
      {.outputs = {graph::Elu(product()), graph::Tanh(product()),
                   graph::Sigmoid(product()),
                   graph::LeakyRelu(product(), 0.1)}},
      store, {.passes = {.off = {"cse"}}});
  for (const char* name : {"x", "w"}) {
    for (float& v : plan.input(name).Span<float>()) v = std::nanf("");
  }
  plan.Run();
  for (size_t i = 0; i < plan.num_outputs(); ++i) {
    for (const float v : plan.output(i).Span<float>()) {
      EXPECT_TRUE(std::isnan(v)) << "output " << i;
    }
  }
}

TEST_P(CpuPlanTest, SubnormalNumbersAreZeroInKernelsOnly) {
  constexpr int64_t kCount = 1 << 18;  // enough for the whole team
  const auto backend = MakeBackend("cpu", {.num_threads = GetParam()});
  runtime::VariableStore store(*backend, /*seed=*/1);
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({kCount}));
  const Output y = g.Input("y", DType::kF32, Shape({kCount}));
  const Output product = graph::Mul(x, y);
  runtime::Executor plan(g, {.outputs = {product}}, store);
  // an operand that is subnormal in one half, a result in the other
  const auto fill = [](MutableTensorView view, float first, float second) {
    const auto values = view.Span<float>();
    const auto middle = values.begin() + kCount / 2;
    std::fill(values.begin(), middle, first);
    std::fill(middle, values.end(), second);
  };
  fill(plan.input("x"), 1e-40F, 1e-20F);
  fill(plan.input("y"), 1e20F, 1e-20F);
  plan.Run();
  for (const float value : plan.output(0).Span<float>()) ASSERT_EQ(value, 0);
  volatile float small = 1e-20F;
  EXPECT_GT(small * small, 0.0F) << "outside kernels";
}

TEST(CpuBackendTest, RefusesOtherFloatsByName) {
  const auto backend = MakeBackend("cpu", {.num_threads = 2});
  Graph g;
  const Output a = g.Input("a", DType::kF64, Shape({2, 2}));
  const Output c = graph::MatMul(a, a, {}, graph::CallSite{"model.cc", 12});
  EXPECT_EQ(MessageOf([&] { backend->CompileKernel(g, c.producer()); }),
            "cpu, 2 threads cannot run MatMul 'MatMul' (model.cc:12): it takes "
            "f32 or bf16, got f64[2,2]");
  const Output x = g.Input("x", DType::kBF16, Shape({2, 3}));
  const Output y = graph::Softmax(x, graph::CallSite{"model.cc", 13});
  EXPECT_EQ(MessageOf([&] { backend->CompileKernel(g, y.producer()); }),
            "cpu, 2 threads cannot run Softmax 'Softmax' (model.cc:13): it "
            "takes f32, got bf16[2,3]");
}

// Would catch a kernel that reads or writes vectors of bf16 as floats, past
// their end.
TEST(CpuBackendTest, NormsRefuseGammaBetaAndStatisticsInBF16) {
  const auto backend = MakeBackend("cpu", {.num_threads = 2});
  Graph g;
  const Output x = g.Input("x", DType::kBF16, Shape({4, 3}));
  const Output gamma = g.Input("gamma", DType::kBF16, Shape({3}));
  const Output beta = g.Input("beta", DType::kBF16, Shape({3}));
  const Output sum =
      graph::Add(graph::Add(graph::LayerNorm(x, gamma, beta),
                            graph::BatchNorm(x, gamma, beta).y),
                 graph::BatchNormApply(x, gamma, beta, graph::BatchMoments(x)));
  graph::Gradients(graph::ReduceSum(sum), {x, gamma});
  int num_norms = 0;
  for (const graph::Node& node : g.nodes()) {
    const std::string_view op = node.op->name;
    if (!op.starts_with("LayerNorm") && !op.starts_with("BatchNorm") &&
        op != "BatchMoments") {
      continue;
    }
    ++num_norms;
    const bool is_moments = op == "BatchMoments";
    EXPECT_EQ(backend->target().WhyUnsupported(g, node),
              std::string("it takes gamma, beta and statistics in f32, got ") +
                  (is_moments ? "bf16[2,3]" : "bf16[3]"))
        << op;
  }
  EXPECT_EQ(num_norms, 7);
}

// Rows with a probability or a reward that is not finite, and one without.
TEST(CpuBackendTest, TheProjectionKeepsNanAsTheReferenceDoes) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Graph g;
  const Output p = g.Input("p", DType::kF32, Shape({6, 5}));
  const Output reward = g.Input("reward", DType::kF32, Shape({6}));
  const Output discount = g.Input("discount", DType::kF32, Shape({6}));
  const Output m = graph::CategoricalProjection(p, reward, discount, -1.0, 1.0);
  const auto run = [&](const char* name) {
    const auto backend = MakeBackend(name);
    runtime::VariableStore store(*backend, /*seed=*/1);
    runtime::Executor plan(g, {.outputs = {m}}, store);
    const auto probabilities = plan.input("p").Span<float>();
    std::ranges::fill(probabilities, 0.25F);
    probabilities[5 * 1 + 2] = kNan;
    probabilities[5 * 2 + 2] = kInfinity;
    std::ranges::copy(
        std::vector<float>{0.25F, 0.25F, 0.25F, kNan, kInfinity, 0.25F},
        plan.input("reward").Span<float>().begin());
    std::ranges::copy(std::vector<float>{0.5F, 0.5F, 0.5F, 0.5F, 0.5F, kNan},
                      plan.input("discount").Span<float>().begin());
    plan.Run();
    std::vector<std::string> values;
    for (const double value : testing::ToDoubles(plan.output(0))) {
      values.push_back(fmt::format("{:.6f}", std::isnan(value) ? kNan : value));
    }
    return values;
  };
  EXPECT_EQ(run("cpu"), run("reference"));
}

TEST(CpuBackendTest, RefusesATeamOfNobody) {
  EXPECT_EQ(MessageOf([] { MakeBackend("cpu", {.num_threads = 0}); }),
            "cpu: want at least 1 thread, got 0");
}

// The result and the gradient of the weights of a first layer.
struct FirstLayer {
  std::vector<double> y, dw;
  bool operator==(const FirstLayer&) const = default;
};

FirstLayer RunFirstLayer(Backend& backend, graph::Precision precision) {
  Graph graph(/*seed=*/0);
  // an odd number of images in some parts of the batch; runs of odd length
  const Shape shape({21, 20, 20, 9});
  const Output x =
      graph::NormalizePixels(graph.Input("x", DType::kU8, shape), DType::kF32);
  const Output w = graph.Input("w", DType::kF32, Shape({24, 9, 3, 3}));
  const Output y = graph::Conv2d(x, w, {.stride = 2, .padding = 1});
  const Output gradient =
      graph::Gradients(graph::ReduceSum(graph::Square(y)), {w})[0];
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(graph, {.outputs = {y, gradient}}, store,
                         {.passes = {.precision = precision}});
  EXPECT_NE(plan.ToText().find("PixelConv2dWeightGradient"), std::string::npos);
  const auto fill = [&](const char* name, const HostTensor& value) {
    std::memcpy(plan.input(name).data(), value.bytes().data(),
                value.size_bytes());
  };
  fill("x", testing::RandomUniform(DType::kU8, shape, 0, 255, /*seed=*/1));
  fill("w", testing::RandomNormal(DType::kF32, w.shape(), /*seed=*/2));
  plan.Run();
  return {.y = testing::ToDoubles(plan.output(0)),
          .dw = testing::ToDoubles(plan.output(1))};
}

// The gradient's sums are divided by images, not by threads, and threads take
// images as they get free.
TEST(CpuBackendTest, TheFirstLayerHasTheSameBitsOnAnyNumberOfThreads) {
  for (const auto precision :
       {graph::Precision::kF32, graph::Precision::kBF16}) {
    const auto run = [&](int num_threads) {
      const auto backend = MakeBackend("cpu", {.num_threads = num_threads});
      return RunFirstLayer(*backend, precision);
    };
    const FirstLayer one = run(1);
    EXPECT_EQ(run(2), one);
    EXPECT_EQ(run(5), one);
  }
}

// Numbers of the image are rounded to bf16 as in the reference, and so is y.
// Sums of n products are in f32: they differ from the exact ones by up to
// sqrt(n) * 2^-24 of their size, times 16 as in op_parity.cc.
TEST(CpuBackendTest, TheFirstLayerInBF16RoundsTheImageAndTheResultOnly) {
  const auto reference =
      RunFirstLayer(*MakeBackend("reference"), graph::Precision::kBF16);
  const auto got = RunFirstLayer(*MakeBackend("cpu", {.num_threads = 2}),
                                 graph::Precision::kBF16);
  const auto largest = [](const std::vector<double>& values) {
    double most = 0.0;
    for (const double value : values) most = std::max(most, std::abs(value));
    return most;
  };
  const auto tolerance = [&](const std::vector<double>& values, double n) {
    return 16.0 * std::sqrt(n) * 0x1p-24 * largest(values);
  };
  // where the two sums lie on two sides of the middle between two values of
  // bf16, the results are one place apart
  const double of_y = tolerance(reference.y, /*n=*/81);
  size_t num_apart = 0;
  for (size_t i = 0; i < got.y.size(); ++i) {
    ASSERT_NEAR(got.y[i], reference.y[i],
                0x1p-7 * std::abs(reference.y[i]) + of_y);
    if (got.y[i] != reference.y[i]) ++num_apart;
  }
  EXPECT_LT(num_apart, got.y.size() / 500);
  // dy is rounded from the y of each, so that what is apart there counts
  const double of_dw =
      tolerance(reference.dw, /*n=*/21 * 100) +
      static_cast<double>(num_apart) * 0x1p-7 * largest(reference.y);
  for (size_t i = 0; i < got.dw.size(); ++i) {
    ASSERT_NEAR(got.dw[i], reference.dw[i], of_dw);
  }
}

// Winograd's way multiplies floats in both precisions, so that a convolution in
// bf16 is the one in f32, rounded. The direct loops add in another order, which
// rounds tens of these 40,000 results and more the other way.
TEST(CpuBackendTest, AConvolutionOfManyChannelsInBF16IsTheOneInF32Rounded) {
  const Shape x_shape({2, 18, 17, 64});
  const Shape w_shape({64, 64, 3, 3});
  // y and the gradients of x and w, for x, w and dy of bf16's values
  const auto run = [&](graph::Precision precision) {
    Graph g(/*seed=*/0);
    const Output x = g.Input("x", DType::kF32, x_shape);
    const Output w = g.Input("w", DType::kF32, w_shape);
    const Output dy = g.Input("dy", DType::kF32, x_shape);
    const Output y = graph::Conv2d(x, w, {.padding = 1});
    const auto gradients =
        graph::Gradients(graph::ReduceSum(graph::Mul(y, dy)), {x, w});
    const auto backend = MakeBackend("cpu", {.num_threads = 2});
    runtime::VariableStore store(*backend, /*seed=*/1);
    runtime::Executor plan(g, {.outputs = {y, gradients[0], gradients[1]}},
                           store, {.passes = {.precision = precision}});
    for (const auto& [name, shape, seed] :
         {std::tuple{"x", x_shape, 1}, {"w", w_shape, 2}, {"dy", x_shape, 3}}) {
      const HostTensor value = testing::RandomNormal(
          DType::kBF16, shape, static_cast<uint64_t>(seed));
      std::ranges::copy(testing::ToDoubles(value.view()),
                        plan.input(name).Span<float>().begin());
    }
    plan.Run();
    std::vector<std::vector<double>> outputs;
    for (size_t i = 0; i < plan.num_outputs(); ++i) {
      outputs.push_back(testing::ToDoubles(plan.output(i)));
    }
    return outputs;
  };
  auto want = run(graph::Precision::kF32);
  for (size_t i = 0; i < 2; ++i) {
    for (double& value : want[i]) {
      value = static_cast<float>(BFloat16(static_cast<float>(value)));
    }
  }
  EXPECT_EQ(run(graph::Precision::kBF16), want);
}

}  // namespace
}  // namespace replicant::kernels
