// Gradients of trained variables: which variables a prefix selects.
#include "engine/nn/trained_variables.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "tests/support/message_of.h"

namespace replicant::nn {
namespace {

using testing::MessageOf;

constexpr CallSite kSite{"model.cc", 12};

// loss = sum(critic/a * critic/b) + sum(policy/a); critic/count is not trained
struct Example {
  Example() : graph(std::make_unique<Graph>()) {
    a = Add("critic/a", true);
    count = Add("critic/count", false);
    b = Add("critic/b", true);
    policy = Add("policy/a", true);
    loss =
        graph::Add(graph::ReduceSum(graph::Mul(graph->Read(a), graph->Read(b))),
                   graph::ReduceSum(graph->Read(policy)));
  }

  VariableId Add(const char* name, bool is_trainable) {
    return graph->AddVariable(
        {.name = name, .shape = Shape({2}), .is_trainable = is_trainable});
  }

  std::unique_ptr<Graph> graph;
  VariableId a, b, count, policy;
  Output loss;
};

TEST(TrainedVariablesTest, APrefixSelectsTrainableVariablesInTheirOrder) {
  const Example example;
  EXPECT_EQ(GradientsOf(example.loss, "critic/").variables,
            (std::vector<VariableId>{example.a, example.b}));
  EXPECT_EQ(GradientsOf(example.loss, "").variables,
            (std::vector<VariableId>{example.a, example.b, example.policy}));
}

TEST(TrainedVariablesTest, AListKeepsItsOrder) {
  const Example example;
  const TrainedVariables trained =
      GradientsOf(example.loss, {example.b, example.a});
  ASSERT_EQ(trained.variables, (std::vector<VariableId>{example.b, example.a}));
  // d loss / d b = dy * a, and the other way round
  EXPECT_EQ(trained.gradients[0].producer().inputs[1],
            example.graph->Read(example.a).endpoint());
  EXPECT_EQ(trained.gradients[1].producer().inputs[1],
            example.graph->Read(example.b).endpoint());
}

TEST(TrainedVariablesTest, OnlyKeepsThePairsOfWantedVariables) {
  const Example example;
  const TrainedVariables all = GradientsOf(example.loss, "critic/");
  const TrainedVariables some = all.Only(
      *example.graph,
      [](const graph::VariableSpec& spec) { return spec.name == "critic/b"; });
  EXPECT_EQ(some.variables, (std::vector<VariableId>{example.b}));
  EXPECT_EQ(some.gradients, (std::vector<Output>{all.gradients[1]}));
}

TEST(TrainedVariablesTest, AnErrorNamesTheCallersLine) {
  const Example example;
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { GradientsOf(example.loss, {example.count}, kSite); }),
            "model.cc:12: Gradients: no gradient flows from the loss 'Add' to "
            "'critic/count'");
}

}  // namespace
}  // namespace replicant::nn
