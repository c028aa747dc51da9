#include "engine/graph/graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/state.h"
#include "engine/graph/print.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::MessageOf;

constexpr CallSite kSite{"model.cc", 12};
constexpr CallSite kLayer{"layer.cc", 5};

TEST(GraphTest, CallSiteIsThePlaceOfTheCaller) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2}));
  const int line = __LINE__ + 1;
  const Output y = Relu(x);
  EXPECT_EQ(y.producer().site.line, line);
  EXPECT_STREQ(y.producer().site.file, __FILE__);
}

TEST(GraphTest, TheOutermostSiteScopeNamesNodesAndErrors) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2}));
  {
    const Graph::SiteScope outer(g, kSite);
    const Graph::SiteScope inner(x, kLayer);
    EXPECT_EQ(g.site().ToString(), "model.cc:12");
    EXPECT_EQ(Relu(x).producer().site.ToString(), "model.cc:12");
    EXPECT_EQ(Relu(x, kLayer).producer().site.ToString(), "model.cc:12");
    EXPECT_EQ(MessageOf([&] { LeakyRelu(x, -1.0, kLayer); }),
              "model.cc:12: LeakyRelu: want slope >= 0, got -1");
  }
  EXPECT_EQ(Relu(x, kLayer).producer().site.ToString(), "layer.cc:5");
}

TEST(GraphTest, ASiteOverrideNamesItsSiteInsideOfAScope) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2}));
  const Graph::SiteScope scope(g, kSite);
  {
    const Graph::SiteOverride override_site(g, kLayer);
    const Graph::SiteScope inner(g, CallSite::Here());
    EXPECT_EQ(Relu(x).producer().site.ToString(), "layer.cc:5");
  }
  EXPECT_EQ(Relu(x).producer().site.ToString(), "model.cc:12");
}

TEST(GraphDeathTest, AsksForASiteOutsideOfAnyScope) {
  const Graph g;
  EXPECT_DEATH(static_cast<void>(g.site()), "no SiteScope is open");
}

TEST(GraphTest, NamesAreMadeUniqueAndCarryTheirScopes) {
  Graph g;
  const Graph::Scope critic(g, "critic");
  const Output x = g.Input("x", DType::kF32, Shape({2}));
  EXPECT_EQ(x.producer().name, "critic/x");
  EXPECT_EQ(Relu(x).producer().name, "critic/Relu");
  EXPECT_EQ(Relu(x).producer().name, "critic/Relu_1");
  {
    const Graph::Scope head(g, "head");
    EXPECT_EQ(Relu(x).producer().name, "critic/head/Relu");
  }
  EXPECT_EQ(Relu(x).producer().name, "critic/Relu_2");
}

TEST(GraphTest, RefusesANameThatIsTaken) {
  Graph g;
  g.Input("x", DType::kF32, Shape({2}));
  try {
    g.Input("x", DType::kF32, Shape({2}), kSite);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "model.cc:12: Input: the name 'x' is taken; hint: an input "
                 "needs a unique name");
  }
  try {
    g.AddVariable({.name = ""}, kSite);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "model.cc:12: AddVariable: the name '' is empty; hint: a "
                 "variable needs a unique name");
  }
}

TEST(GraphTest, RefusesAnInputOfAnotherGraph) {
  Graph a;
  Graph b;
  const Output x = a.Input("x", DType::kF32, Shape({2}));
  const Output y = b.Input("y", DType::kF32, Shape({2}));
  try {
    Add(x, y, kSite);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "model.cc:12: Add: input 'y' belongs to another graph");
  }
}

TEST(GraphTest, ReadGivesTheVersionThatTheLastUpdateMade) {
  Graph g;
  const VariableId v = g.AddVariable({.name = "v", .shape = Shape({2})});
  const Output before = g.Read(v);
  EXPECT_EQ(g.Read(v), before);
  const Output after = Assign(g, v, Mul(before, 2.0));
  EXPECT_EQ(g.Read(v), after);
  EXPECT_NE(before, after);
}

TEST(GraphTest, FindVariableNamesTheNearest) {
  Graph g;
  g.AddVariable({.name = "critic/weight"});
  g.AddVariable({.name = "actor/weight"});
  EXPECT_EQ(g.FindVariable("actor/weight"), 1);
  try {
    g.FindVariable("critic/wieght");
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "FindVariable: no variable 'critic/wieght'; hint: the nearest "
                 "name is 'critic/weight'");
  }
}

TEST(GraphTest, ScalarsAreRoundedToTheirType) {
  Graph g;
  const auto value = [](const Output& x) {
    return x.producer().constant->view();
  };
  EXPECT_EQ(value(g.Scalar(300.0, DType::kU8)).Span<uint8_t>()[0], 255);
  EXPECT_EQ(value(g.Scalar(-2.7, DType::kI32)).Span<int32_t>()[0], -2);
  EXPECT_EQ(value(g.Scalar(1e30, DType::kI64)).Span<int64_t>()[0], INT64_MAX);
  EXPECT_EQ(value(g.Scalar(0.1, DType::kF32)).Span<float>()[0], 0.1F);
  EXPECT_TRUE(value(g.Scalar(3.0, DType::kBool)).Span<bool>()[0]);
}

TEST(GraphTest, PrintsOneLineANode) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({8, 3}));
  const VariableId w = g.AddVariable({.name = "w", .shape = Shape({5, 3})});
  Relu(MatMul(x, g.Read(w), {.transpose_b = true}));
  EXPECT_EQ(PrintText(g),
            "x = Input() -> f32[8,3]\n"
            "w = Variable() -> f32[5,3]\n"
            "MatMul = MatMul(x, w) transpose_a=false transpose_b=true -> "
            "f32[8,5]\n"
            "Relu = Relu(MatMul) program={%1=Relu(%0):f32} -> f32[8,5]\n");
  EXPECT_EQ(PrintDot(g),
            "digraph {\n"
            "  node [shape=box];\n"
            "  n0 [label=\"x\\nInput\\nf32[8,3]\" style=rounded];\n"
            "  n1 [label=\"w\\nVariable\\nf32[5,3]\" style=rounded];\n"
            "  n2 [label=\"MatMul\\nMatMul\\nf32[8,5]\"];\n"
            "  n0 -> n2;\n"
            "  n1 -> n2;\n"
            "  n3 [label=\"Relu\\nRelu\\nf32[8,5]\"];\n"
            "  n2 -> n3;\n"
            "}\n");
}

TEST(AttributesTest, AreComparedAndPrintedByName) {
  Attributes a{{"b", int64_t{2}}, {"a", true}};
  const Attributes b{{"a", true}, {"b", int64_t{2}}};
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.ToString(), "a=true b=2");
  a.Set("b", std::vector<int64_t>{1, 2});
  EXPECT_EQ(a.ToString(), "a=true b=[1,2]");
  EXPECT_FALSE(a == b);
}

TEST(AttributesDeathTest, AskingForAnotherTypeAborts) {
  const Attributes a{{"x", int64_t{2}}};
  EXPECT_DEATH(static_cast<void>(a.Bool("x")),
               "attribute 'x' has another type");
  EXPECT_DEATH(static_cast<void>(a.Int("y")), "no attribute 'y'");
}

}  // namespace
}  // namespace replicant::graph
