#include "engine/kernels/cpu/shared_packs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/reduce.h"
#include "engine/kernels/backend.h"
#include "tests/support/message_of.h"
#include "tests/support/tensor_values.h"

namespace replicant::kernels::cpu {
namespace {

using graph::Graph;
using graph::Node;
using graph::Output;

TEST(SharedPackTest, EveryPieceIsMadeOnceInEveryRound) {
  constexpr int64_t kPieces = 5;
  constexpr int64_t kRounds = 300;
  constexpr int kPlans = 3;
  SharedPack pack(kPieces * sizeof(int64_t));
  auto* pieces = reinterpret_cast<int64_t*>(pack.data());
  std::fill_n(pieces, kPieces, 0);
  // what holds a plan back until all are done with a round
  std::barrier round_end(kPlans);
  std::vector<int64_t> num_wrong(kPlans, 0);
  std::vector<std::thread> plans;
  plans.reserve(kPlans);
  for (int plan = 0; plan < kPlans; ++plan) {
    plans.emplace_back([&, plan] {
      for (int64_t round = 0; round < kRounds; ++round) {
        pack.MakePieces(round, kPieces, [&](int64_t i) { ++pieces[i]; });
        num_wrong[static_cast<size_t>(plan)] +=
            kPieces - std::count(pieces, pieces + kPieces, round + 1);
        round_end.arrive_and_wait();
      }
    });
  }
  for (std::thread& plan : plans) plan.join();
  EXPECT_EQ(num_wrong, std::vector<int64_t>(kPlans, 0));
}

TEST(SharedPackTest, WhoComesLateFindsTheWorkDone) {
  SharedPack pack(64);
  int num_made = 0;
  for (int64_t round = 0; round < 3; ++round) {
    pack.MakePieces(round, 4, [&](int64_t /*piece*/) { ++num_made; });
    pack.MakePieces(round, 4, [](int64_t /*piece*/) { FAIL(); });
  }
  EXPECT_EQ(num_made, 12);
}

TEST(SharedPackTest, NobodyWaitsForAPieceThatFailed) {
  SharedPack pack(64);
  EXPECT_THROW(
      pack.MakePieces(0, 4, [](int64_t /*piece*/) { throw IoError("disk"); }),
      IoError);
  EXPECT_EQ(testing::MessageOf<DeviceError>(
                [&] { pack.MakePieces(0, 4, [](int64_t /*piece*/) {}); }),
            "another replica failed to pack shared weights");
}

TEST(SharedPacksTest, APackHasOneName) {
  SharedPacks packs;
  const auto pack = packs.Get("3 w, blocks", 64);
  EXPECT_EQ(packs.Get("3 w, blocks", 64), pack);
  EXPECT_NE(packs.Get("4 w, blocks", 64), pack);
}

// A convolution or the gradient of its input, as one replica has it.
class ConvReplica {
 public:
  ConvReplica(const Graph& graph, const Node& node, ReplicaGroup* group)
      : backend_(MakeBackend("cpu", {.num_threads = 1})),
        kernel_(backend_->CompileKernel(
            graph, node,
            std::vector<InputTraits>{{},
                                     {.group = group, .name_in_group = "w"}})),
        images_(testing::RandomUniform(
            DType::kF32, graph.node(node.inputs[0].node).output_type().shape,
            -1.0, 1.0, /*seed=*/1)),
        weights_(DType::kF32,
                 graph.node(node.inputs[1].node).output_type().shape),
        result_(DType::kF32, node.output_type().shape) {
    scratch_ =
        backend_->Allocate(std::max<size_t>(1, kernel_->scratch_size_bytes()));
    kernel_->Bind({.inputs = {images_.bytes().data(), weights_.bytes().data()},
                   .outputs = {result_.bytes().data()},
                   .scratch = scratch_->data()});
    stream_ = backend_->CreateStream();
  }

  std::vector<float> Run(uint64_t seed) {
    const HostTensor weights =
        testing::RandomUniform(DType::kF32, weights_.shape(), -1.0, 1.0, seed);
    std::ranges::copy(weights.bytes(), weights_.bytes().begin());
    kernel_->Launch(*stream_);
    const auto values = result_.Span<float>();
    return {values.begin(), values.end()};
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Kernel> kernel_;
  HostTensor images_, weights_, result_;
  std::unique_ptr<Buffer> scratch_;
  std::unique_ptr<Stream> stream_;
};

struct Case {
  std::string name;
  Shape images;
  int64_t channels, stride;
  // Whether every build packs the weights in pieces.
  bool is_shared;
};

class SharedConvTest : public ::testing::TestWithParam<Case> {
 protected:
  // `op`: of the node that is compiled.
  void Check(const std::string& op) {
    Graph graph;
    const Case& c = GetParam();
    const Output images = graph.Input("images", DType::kF32, c.images);
    const Output weights = graph.Input("weights", DType::kF32,
                                       Shape({c.channels, c.images[3], 3, 3}));
    const Output y =
        graph::Conv2d(images, weights, {.stride = c.stride, .padding = 1});
    graph::Gradients(graph::ReduceSum(y), {images});
    const auto node = std::ranges::find(graph.nodes(), op, [](const Node& n) {
      return std::string(n.op->name);
    });
    ASSERT_NE(node, graph.nodes().end());
    const std::unique_ptr<ReplicaGroup> group =
        MakeBackend("cpu")->CreateReplicaGroup();
    ConvReplica alone(graph, *node, nullptr), first(graph, *node, group.get()),
        second(graph, *node, group.get());
    for (uint64_t round = 1; round <= 3; ++round) {
      const std::vector<float> expected = alone.Run(round);
      EXPECT_EQ(first.Run(round), expected);
      // of other weights, were they not packed already
      EXPECT_EQ(second.Run(c.is_shared ? 100 + round : round), expected);
    }
  }
};

TEST_P(SharedConvTest, TheForwardOnePacksOnce) { Check("Conv2d"); }
TEST_P(SharedConvTest, TheInputGradientPacksOnce) {
  Check("Conv2dInputGradient");
}

INSTANTIATE_TEST_SUITE_P(
    Ways, SharedConvTest,
    ::testing::Values(Case{"Winograd", Shape({1, 24, 24, 48}), 32, 1, true},
                      Case{"FewChannels", Shape({1, 24, 24, 32}), 32, 1, true},
                      Case{"OneDnn", Shape({1, 8, 8, 64}), 128, 2, false},
                      // too few to be cut
                      Case{"Whole", Shape({1, 8, 8, 8}), 8, 2, false}),
    [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace replicant::kernels::cpu
