#include "engine/graph/passes/autocast.h"

#include <gtest/gtest.h>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/graph/print.h"

namespace replicant::graph {
namespace {

// The types in the program that Autocast() makes, by the nodes' names.
class Types {
 public:
  explicit Types(const std::vector<Output>& outputs,
                 const std::vector<Output>& updates = {})
      : program_(Autocast(
            ExtractProgram(*outputs.front().graph, outputs, updates))) {}

  DType of(const std::string& name, size_t output = 0) const {
    for (const Node& node : program_.graph->nodes()) {
      if (node.name == name) return node.outputs[output].dtype;
    }
    ADD_FAILURE() << "no node " << name << " in\n"
                  << PrintText(*program_.graph);
    return DType::kBool;
  }
  int NumCasts() const {
    int count = 0;
    for (const Node& node : program_.graph->nodes()) {
      if (node.name.starts_with("Cast")) ++count;
    }
    return count;
  }
  DType fetched(size_t i) const { return program_.outputs[i].dtype(); }

 private:
  Program program_;
};

class AutocastTest : public ::testing::Test {
 protected:
  Output Input(const std::string& name, const Shape& shape) {
    return graph_.Input(name, DType::kF32, shape);
  }

  Graph graph_;
};

TEST_F(AutocastTest, ProductsOfMatricesStoreBF16AndBiasesAreReadAsTheyAre) {
  const Output product =
      MatMul(Input("x", Shape({4, 3})), Input("w", Shape({3, 2})));
  const Output y = Relu(Add(product, Input("b", Shape({2}))));
  const Types types({y});
  EXPECT_EQ(types.of("MatMul"), DType::kBF16);
  EXPECT_EQ(types.of("Add"), DType::kBF16);
  EXPECT_EQ(types.of("Relu"), DType::kBF16);
  // x, w, and the result for the caller; not the bias
  EXPECT_EQ(types.NumCasts(), 3);
  EXPECT_EQ(types.fetched(0), DType::kF32);
}

TEST_F(AutocastTest, ProductsWithVectorsStayF32) {
  const Output w = Input("w", Shape({3, 2}));
  const Output row = MatMul(Input("x", Shape({1, 3})), w);
  const Output outer =
      MatMul(Input("a", Shape({3, 1})), Input("b", Shape({1, 2})));
  EXPECT_EQ(Types({row, outer}).NumCasts(), 0);
}

TEST_F(AutocastTest, GradientsOfWeightsAreF32AndThoseOfActivationsAreBF16) {
  const VariableId v =
      graph_.AddVariable({.name = "v", .shape = Shape({3, 5})});
  const VariableId w =
      graph_.AddVariable({.name = "w", .shape = Shape({5, 2})});
  const Output h = MatMul(Input("x", Shape({4, 3})), graph_.Read(v));
  const Output y = MatMul(h, graph_.Read(w));
  const std::vector<Output> gradients =
      Gradients(ReduceMean(Square(y)), {graph_.Read(v), graph_.Read(w)});
  const Types types(gradients, {Assign(graph_, v, gradients[0])});
  EXPECT_EQ(types.of(h.producer().name), DType::kBF16);
  EXPECT_EQ(types.of(gradients[0].producer().name), DType::kF32);
  EXPECT_EQ(types.of(gradients[1].producer().name), DType::kF32);
  // dy, which both products of the second one's gradient read
  EXPECT_EQ(types.of("gradients/MatMul_1/MatMul"), DType::kBF16);
  EXPECT_EQ(types.fetched(0), DType::kF32);
}

TEST_F(AutocastTest, ConvolutionsAndNormsStoreBF16AndStatisticsF32) {
  const Output x = Input("x", Shape({2, 5, 5, 3}));
  const Output conv = Conv2d(x, Input("w", Shape({4, 3, 3, 3})));
  const BatchNormOutputs norm =
      BatchNorm(conv, Input("gamma", Shape({4})), Input("beta", Shape({4})),
                {.has_relu = true, .residual = conv});
  const Output loss = ReduceMean(norm.y);
  const std::vector<Output> gradients =
      Gradients(loss, {graph_.output({1, 0})});
  const Types types({loss, norm.mean, gradients[0]});
  EXPECT_EQ(types.of("Conv2d"), DType::kBF16);
  EXPECT_EQ(types.of("BatchNorm"), DType::kBF16);
  EXPECT_EQ(types.of("BatchNorm", 1), DType::kF32);
  EXPECT_EQ(types.of("BatchNorm", 2), DType::kF32);
  EXPECT_EQ(types.of("ReduceMean"), DType::kF32);
  EXPECT_EQ(types.of("gradients/BatchNorm/BatchNormGradient"), DType::kBF16);
  EXPECT_EQ(types.of("gradients/BatchNorm/BatchNormGradient", 1), DType::kF32);
}

TEST_F(AutocastTest, LossesAreF32) {
  const Output logits =
      MatMul(Input("x", Shape({4, 3})), Input("w", Shape({3, 5})));
  const Output loss =
      SoftmaxCrossEntropy(logits, Input("target", Shape({4, 5})));
  const Types types({ReduceMean(loss)});
  EXPECT_EQ(types.of("MatMul"), DType::kBF16);
  EXPECT_EQ(types.of("SoftmaxCrossEntropy"), DType::kF32);
}

TEST_F(AutocastTest, ElementwiseOpsOfTwoTypesStoreF32) {
  const Output x = Input("x", Shape({4, 3}));
  const Output h = MatMul(x, Input("w", Shape({3, 3})));
  const Types types({Mul(h, x), Where(Greater(h, x), h, Mul(h, 2.0))});
  EXPECT_EQ(types.of("Mul"), DType::kF32);
  EXPECT_EQ(types.of("Greater"), DType::kBool);
  EXPECT_EQ(types.of("Where"), DType::kBF16);
}

TEST_F(AutocastTest, ConcatStoresBF16OnlyOfBF16) {
  const Output x = Input("x", Shape({4, 3}));
  const Output h = MatMul(x, Input("w", Shape({3, 3})));
  const Types types({Concat({h, h}, 1), Concat({h, x}, 1)});
  EXPECT_EQ(types.of("Concat"), DType::kBF16);
  EXPECT_EQ(types.of("Concat_1"), DType::kF32);
}

// The caller fills inputs by name. This one comes after the casts of x and w.
TEST_F(AutocastTest, AnInputKeepsItsName) {
  const Output h = MatMul(Input("x", Shape({4, 3})), Input("w", Shape({3, 2})));
  const Types types({Mul(h, Input("Cast", Shape({4, 2})))});
  EXPECT_EQ(types.of("Cast"), DType::kF32);
  EXPECT_EQ(types.of("Cast_1"), DType::kBF16);
}

TEST_F(AutocastTest, WhatIsNotF32IsLeftAlone) {
  const Output x = graph_.Input("x", DType::kF64, Shape({4, 3}));
  const Output w = graph_.Input("w", DType::kF64, Shape({3, 3}));
  const Output y = MatMul(x, w);
  EXPECT_EQ(Types({y}).of("MatMul"), DType::kF64);
  EXPECT_EQ(Types({y}).NumCasts(), 0);
}

}  // namespace
}  // namespace replicant::graph
