#include "engine/graph/ops/optimizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/state.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::kGradientTolerance;
using testing::MessageOf;
using testing::RandomNormal;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

// A graph with two f64 parameters of 3 and 2 elements and gradients for them.
struct Problem {
  explicit Problem(int num_slots) {
    Graph& g = runner.graph();
    for (const auto& [name, size] :
         {std::pair<std::string, int64_t>{"a", 3}, {"b", 2}}) {
      parameters.push_back(Add(name, size));
      gradients.push_back(
          runner.Input("d" + name, RandomNormal(DType::kF64, Shape({size}),
                                                static_cast<uint64_t>(size))));
      for (int slot = 0; slot < num_slots; ++slot) {
        slots.resize(static_cast<size_t>(num_slots));
        slots[static_cast<size_t>(slot)].push_back(
            Add(name + std::to_string(slot), size));
      }
    }
    runner.store().Declare(g);
    runner.store().Set("a", Values(DType::kF64, Shape({3}), {1, 2, 3}).view());
    runner.store().Set("b", Values(DType::kF64, Shape({2}), {-1, 0.5}).view());
    // no f32 holds them
    rate = g.Scalar(0.1, DType::kF64);
    scale = g.Scalar(0.3, DType::kF64);
    step = g.AddVariable(
        {.name = "step", .dtype = DType::kI64, .shape = Shape({})});
    step_value = g.Read(step);
    advance = Assign(g, step, graph::Add(step_value, 1.0));
  }

  VariableId Add(const std::string& name, int64_t size) {
    return runner.graph().AddVariable(
        {.name = name, .dtype = DType::kF64, .shape = Shape({size})});
  }

  // All parameters after `steps` runs.
  V After(const Output& update, int steps) {
    const auto plan = runner.Compile({.updates = {update, advance}});
    for (int i = 0; i < steps; ++i) plan->Run();
    return Parameters();
  }
  V Parameters() {
    V result = testing::ToDoubles(runner.store().Get("a").view());
    const V b = testing::ToDoubles(runner.store().Get("b").view());
    result.insert(result.end(), b.begin(), b.end());
    return result;
  }
  V Gradients() {
    V result = runner.Eval(gradients[0]);
    const V b = runner.Eval(gradients[1]);
    result.insert(result.end(), b.begin(), b.end());
    return result;
  }

  GraphRunner runner;
  std::vector<VariableId> parameters;
  std::vector<std::vector<VariableId>> slots;
  std::vector<Output> gradients;
  Output rate, scale, step_value, advance;
  VariableId step = -1;
};

void ExpectNear(const V& actual, const V& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-14);
  }
}

TEST(SgdUpdateTest, FollowsTheFormulaWithAndWithoutNesterov) {
  for (const bool nesterov : {false, true}) {
    Problem problem(1);
    V p = problem.Parameters();
    const V g = problem.Gradients();
    const Output update = SgdUpdate(
        problem.parameters, problem.slots[0], problem.gradients, problem.rate,
        problem.scale,
        {.momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.01});
    V u(p.size(), 0.0);
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < p.size(); ++i) {
        const double d = 0.3 * g[i] + 0.01 * p[i];
        u[i] = 0.9 * u[i] + d;
        p[i] -= 0.1 * (nesterov ? d + 0.9 * u[i] : u[i]);
      }
    }
    ExpectNear(problem.After(update, 3), p);
  }
}

// Two parameters of 9000 and 5 elements after an update by Adam whose gradient
// is the mean of two: in one node, or in three, each of which sums for its
// part.
std::vector<V> AfterAdam(const std::string& backend, bool is_cut) {
  GraphRunner runner(backend);
  Graph& g = runner.graph();
  AdamVariables variables;
  std::vector<Output> gradients[2];
  for (const auto& [name, size] :
       {std::pair<std::string, int64_t>{"a", 9000}, {"b", 5}}) {
    const Shape shape({size});
    for (const auto& [group, suffix] : {std::pair{&variables.parameters, ""},
                                        {&variables.first_moments, "m"},
                                        {&variables.second_moments, "v"}}) {
      group->push_back(g.AddVariable({.name = name + suffix, .shape = shape}));
    }
    for (uint64_t j = 0; j < 2; ++j) {
      gradients[j].push_back(runner.Input(fmt::format("d{}{}", name, j),
                                          RandomNormal(DType::kF32, shape, j)));
    }
  }
  const Output rate = g.Scalar(0.1, DType::kF32);
  const Output scale = g.Scalar(0.75, DType::kF32);
  const Output step = g.Scalar(3.0, DType::kI64);
  std::vector<Output> means;
  for (size_t i = 0; i < 2; ++i) {
    means.push_back(Mul(graph::Add(gradients[0][i], gradients[1][i]), 0.5));
  }
  const Output whole =
      AdamUpdate(g, variables, means, rate, scale, step, {.epsilon = 1e-3});
  if (!is_cut) {
    runner.Compile({.updates = {whole}})->Run();
  } else {
    // as plans of three replicas make it: each reads what the update replaces
    for (int64_t part = 0; part < 3; ++part) {
      const Node& node = whole.producer();
      Graph::NodeSpec spec{.op = node.op,
                           .attributes = node.attributes,
                           .updates = node.updates};
      for (const Endpoint& input : node.inputs) {
        spec.inputs.push_back(g.output(input));
      }
      const auto first =
          spec.inputs.begin() + static_cast<int64_t>(*FirstGradient(node));
      std::ranges::copy(gradients[0], first);
      spec.inputs.insert(first + 2, gradients[1].begin(), gradients[1].end());
      SetUpdatePart({.index = part,
                     .count = 3,
                     .num_gradients = 2,
                     .gradient_factor = 0.5},
                    &spec.attributes);
      const Output update = g.Add(std::move(spec), kSite);
      runner.Compile({.updates = {update}})->Run();
    }
  }
  std::vector<V> values;
  for (const char* name : {"a", "b", "am", "bv"}) {
    values.push_back(testing::ToDoubles(runner.store().Get(name).view()));
  }
  return values;
}

TEST(UpdatePartTest, PartsThatSumTheirGradientsMakeTheWholeBitByBit) {
  for (const char* backend : {"reference", "cpu"}) {
    const std::vector<V> whole = AfterAdam(backend, /*is_cut=*/false);
    EXPECT_EQ(AfterAdam(backend, /*is_cut=*/true), whole) << backend;
    EXPECT_NE(whole[0][8999], 0.0);
  }
}

TEST(SgdUpdateTest, WithoutMomentumNeedsNoSlots) {
  Problem problem(0);
  V p = problem.Parameters();
  const V g = problem.Gradients();
  const Output update = SgdUpdate(problem.parameters, {}, problem.gradients,
                                  problem.rate, problem.scale);
  for (size_t i = 0; i < p.size(); ++i) p[i] -= 0.1 * 0.3 * g[i];
  ExpectNear(problem.After(update, 1), p);
}

TEST(AdamUpdateTest, FollowsTheFormula) {
  Problem problem(2);
  V p = problem.Parameters();
  const V g = problem.Gradients();
  const Output update =
      AdamUpdate(problem.runner.graph(),
                 {problem.parameters, problem.slots[0], problem.slots[1]},
                 problem.gradients, problem.rate, problem.scale,
                 problem.step_value, {.weight_decay = 0.1});
  V m(p.size(), 0.0), v(p.size(), 0.0);
  for (int t = 1; t <= 4; ++t) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double d = 0.3 * g[i];
      m[i] = 0.9 * m[i] + 0.1 * d;
      v[i] = 0.999 * v[i] + 0.001 * d * d;
      const double m_hat = m[i] / (1.0 - std::pow(0.9, t));
      const double v_hat = v[i] / (1.0 - std::pow(0.999, t));
      p[i] = p[i] * (1.0 - 0.1 * 0.1) - 0.1 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
  }
  ExpectNear(problem.After(update, 4), p);
}

// From m = v = 0 and g = 1 the moments are 1 - beta, each rounded once.
TEST(AdamUpdateTest, RoundsNoConstantTwice) {
  for (const char* backend : {"reference", "cpu"}) {
    GraphRunner runner(backend);
    Graph& g = runner.graph();
    AdamVariables variables;
    for (const auto& [group, name] : {std::pair{&variables.parameters, "p"},
                                      {&variables.first_moments, "m"},
                                      {&variables.second_moments, "v"}}) {
      group->push_back(g.AddVariable({.name = name, .shape = Shape({9})}));
    }
    const Output gradient =
        runner.Input("g", Values(DType::kF32, Shape({9}), V(9, 1.0)));
    const Output one = g.Scalar(1.0, DType::kF32);
    const Output update = AdamUpdate(g, variables, {gradient}, one, one,
                                     g.Scalar(0.0, DType::kI64));
    runner.Compile({.updates = {update}})->Run();
    EXPECT_EQ(runner.store().Get("m").Span<float>()[8], 0.1F) << backend;
    EXPECT_EQ(runner.store().Get("v").Span<float>()[8], 0.001F) << backend;
  }
}

TEST(MovingAverageUpdateTest, MovesCopiesOrLeaves) {
  for (const double rate : {0.005, 1.0, 0.0}) {
    Problem problem(0);
    const V p = problem.Parameters();
    const V g = problem.Gradients();
    const Output update =
        MovingAverageUpdate(problem.parameters, problem.gradients,
                            problem.runner.graph().Scalar(rate, DType::kF64));
    V expected(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      expected[i] = (1.0 - rate) * p[i] + rate * g[i];
    }
    EXPECT_EQ(problem.After(update, 1), expected);
  }
}

// One after the other would give both variables the same value.
TEST(MovingAverageUpdateTest, RefusesToSwapVariables) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId a = g.AddVariable({.name = "a", .shape = Shape({2})});
  const VariableId b = g.AddVariable({.name = "b", .shape = Shape({2})});
  const Output swap = MovingAverageUpdate({a, b}, {g.Read(b), g.Read(a)},
                                          g.Scalar(1.0, DType::kF32), kSite);
  EXPECT_EQ(MessageOf([&] { runner.Compile({.updates = {swap}}); }),
            "model.cc:12: MovingAverageUpdate 'MovingAverageUpdate' replaces "
            "variable 'b' and also takes its old value as input 2; hint: take "
            "Identity() of the old value");
}

TEST(PeriodicCopyUpdateTest, CopiesAtMultiplesOfThePeriod) {
  Problem problem(0);
  Graph& g = problem.runner.graph();
  const VariableId copy = problem.Add("copy", 3);
  // what is copied changes every step
  const Output source =
      Mul(g.Read(problem.parameters[0]), Cast(problem.step_value, DType::kF64));
  const Output update =
      PeriodicCopyUpdate({copy}, {source}, problem.step_value, 3);
  const auto plan =
      problem.runner.Compile({.updates = {update, problem.advance}});
  V seen;
  for (int step = 0; step < 7; ++step) {
    plan->Run();
    seen.push_back(problem.runner.store().Get("copy").Span<double>()[0]);
  }
  EXPECT_EQ(seen, (V{0, 0, 0, 3, 3, 3, 6}));
}

TEST(ClipTest, GlobalNormScalesAllByOneFactor) {
  GraphRunner runner;
  const Output a = runner.Input("a", Values(DType::kF32, Shape({2}), {3, 0}));
  const Output b = runner.Input("b", Values(DType::kF32, Shape({1}), {4}));
  EXPECT_EQ(runner.Eval(GlobalNorm({a, b})), (V{5}));
  EXPECT_NEAR(runner.Eval(GlobalNormClipScale({a, b}, 1.0))[0], 0.2, 1e-6);
  EXPECT_EQ(runner.Eval(GlobalNormClipScale({a, b}, 10.0)), (V{1}));
  const Output c = runner.Input("c", Values(DType::kF64, Shape({1}), {0.7}));
  EXPECT_NEAR(runner.Eval(GlobalNormClipScale({c}, 0.1))[0], 0.1 / (0.7 + 1e-6),
              1e-16);
}

TEST(ClipTest, RowsAreClippedOneByOne) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({2, 2}), {3, 4, 0.3, 0.4}));
  const V y = runner.Eval(ClipRowsByNorm(x, 1.0));
  ExpectNear(y, {0.6, 0.8, 0.3, 0.4});
  EXPECT_LT(runner.MaxGradientError(ClipRowsByNorm(x, 1.0), {x}),
            kGradientTolerance);
}

TEST(OptimizerTest, RefusesWhatDoesNotFit) {
  Problem problem(1);
  const auto& p = problem.parameters;
  const Output g = problem.gradients[0];
  EXPECT_EQ(MessageOf([&] {
              SgdUpdate(p, {}, {g}, problem.rate, problem.scale, {}, kSite);
            }),
            "model.cc:12: 2 variables but 1 gradients");
  EXPECT_EQ(MessageOf([&] {
              SgdUpdate(p, {}, {g, g}, problem.rate, problem.scale, {}, kSite);
            }),
            "model.cc:12: SgdUpdate 'SgdUpdate': variable 1 is f64[2], its "
            "slot or gradient is f64[3]");
  EXPECT_EQ(MessageOf([&] {
              SgdUpdate({p[0]}, {}, {g}, g, problem.scale, {}, kSite);
            }),
            "model.cc:12: SgdUpdate 'SgdUpdate': want learning_rate of f64[], "
            "got f64[3]");
  const Output rounded = problem.runner.graph().Scalar(0.1, DType::kF32);
  EXPECT_EQ(MessageOf([&] {
              SgdUpdate(p, {}, {g, problem.gradients[1]}, rounded,
                        problem.scale, {}, kSite);
            }),
            "model.cc:12: SgdUpdate 'SgdUpdate': want learning_rate of f64[], "
            "got f32[]");
  EXPECT_EQ(MessageOf([&] { GlobalNormClipScale({g}, 0.0, kSite); }),
            "model.cc:12: GlobalNormClipScale: want max_norm > 0, got 0");
}

}  // namespace
}  // namespace replicant::graph
