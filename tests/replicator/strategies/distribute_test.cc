// Run by mpirun; every process runs all tests.
#include "replicator/strategies/distribute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/variable_store.h"
#include "replicator/comm/mpi_communicator.h"
#include "tests/support/message_of.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

constexpr int64_t kRows = 4;
constexpr int64_t kColumns = 64;

// The mean of w, as a plan over all processes.
class MeanOfW {
 public:
  explicit MeanOfW(Distribution* processes) : store_(*backend_, /*seed=*/1) {
    DistributedReplica replica(processes, graph_);
    const graph::Output x =
        replica.Input("x", DType::kF64, Shape({kRows, kColumns}));
    EXPECT_EQ(x.shape(), Shape({kRows / processes->num_processes(), kColumns}));
    const graph::Output w = graph_.Read(graph_.AddVariable(
        {.name = "w", .dtype = DType::kF64, .shape = Shape({kColumns})}));
    plan_ = replica.Compile({.outputs = {graph::ReduceMean(graph::Mul(x, w))}},
                            store_);
    EXPECT_EQ(plan_->input("x").shape(), Shape({kRows, kColumns}));
  }

  runtime::VariableStore& store() { return store_; }
  double Run() {
    std::ranges::fill(plan_->input("x").Span<double>(), 1.0);
    plan_->Run();
    return plan_->output(0).Span<double>()[0];
  }

 private:
  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::MakeBackend("reference", {});
  graph::Graph graph_{/*seed=*/1};
  runtime::VariableStore store_;
  std::unique_ptr<DistributedPlan> plan_;
};

TEST(DistributeTest, EveryModelBeginsWithTheFirstProcesssVariables) {
  const auto processes = Distribute(kRows);
  ASSERT_EQ(processes->num_processes(), comm::NumMpiProcesses());
  // one of them gets the memory of an earlier one
  for (int i = 1; i < 20; ++i) {
    const double value = i;
    MeanOfW model(processes.get());
    if (processes->leads()) {
      const std::vector<double> w(kColumns, value);
      model.store().Set("w",
                        TensorView(DType::kF64, Shape({kColumns}), w.data()));
    }
    EXPECT_EQ(model.Run(), value);
    EXPECT_EQ(model.store().Get("w").Span<double>()[0], value);
  }
}

TEST(DistributeTest, RefusesStoresOfDifferentVariables) {
  const auto processes = Distribute(kRows);
  MeanOfW model(processes.get());
  if (processes->leads()) {
    graph::Graph more(/*seed=*/1);
    more.AddVariable({.name = "v", .dtype = DType::kF32, .shape = Shape({2})});
    model.store().Declare(more);
  }
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { model.Run(); }),
            "Distribute: processes 0 and 1 begin with different variables: v "
            "f32[2], w f64[64] and w f64[64]; hint: the store of a plan holds "
            "the same ones in every process");
}

}  // namespace
}  // namespace replicant::replicator
