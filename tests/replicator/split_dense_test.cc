// A layer of hidden units divided over logical devices, against the whole.
#include "engine/nn/split_dense.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::nn {
namespace {

using namespace replicator;  // NOLINT(google-build-using-namespace)
using ::replicant::testing::MessageOf;

constexpr int64_t kHidden = 8;
constexpr int64_t kOut = 6;

// A value by layer, row of the weight and column; column -1 is the bias.
double ValueAt(int layer, int64_t row, int64_t column) {
  return std::sin(static_cast<double>(7 * layer + 3 * row + column) * 1.3);
}

// Elements of a part: rows and columns of it start at these of the whole.
Initializer PartOf(int layer, int64_t first_row, int64_t first_column) {
  return [=](RandomStream& /*random*/, MutableTensorView value) {
    const bool is_bias = value.shape().rank() == 1;
    const int64_t columns = is_bias ? 1 : value.shape()[1];
    const auto span = value.Span<double>();
    for (size_t i = 0; i < span.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      span[i] = ValueAt(layer, first_row + at / columns,
                        is_bias ? -1 : first_column + at % columns);
    }
  };
}

struct Trained {
  std::vector<double> hidden;
  std::vector<double> y;
  // after one step of gradient descent, as the whole has them
  std::map<std::string, std::vector<double>> variables;
};

// x -> Dense -> relu -> Dense, in `parts` on as many devices, or whole.
Trained Train(int parts, int devices) {
  const auto replicator = MakeReplicator(
      {.backend = "reference", .logical_devices = devices}, /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 1, RealValue));
  const auto step = replicator->Build(
      *input, [&](ReplicaContext& replica, const Inputs& batch) {
        Graph& g = replica.graph();
        const LayerOptions f64{.dtype = DType::kF64};
        Output hidden;
        Output y;
        if (parts == 0) {
          LayerOptions up = f64;
          up.weight = up.bias = PartOf(0, 0, 0);
          LayerOptions down = f64;
          down.weight = down.bias = PartOf(1, 0, 0);
          hidden =
              graph::Relu(Dense(g, "up", kColumns, kHidden, up)(batch.at("x")));
          y = Dense(g, "down", kHidden, kOut, down)(hidden);
        } else {
          const ColumnDense up(g, "up", kColumns, kHidden, parts, f64);
          const RowDense down(g, "down", kHidden, kOut, parts, f64);
          std::vector<Output> h = up(batch.at("x"));
          for (size_t i = 0; i < h.size(); ++i) {
            const Graph::DeviceScope device(
                g, devices == 1 ? 0 : static_cast<int32_t>(i));
            h[i] = graph::Relu(h[i]);
          }
          y = down(h);
          hidden = graph::Concat(h, 1);
        }
        const Output loss = graph::ReduceSum(graph::Square(y));
        std::vector<VariableId> all;
        std::vector<Output> reads;
        for (size_t v = 0; v < g.variables().size(); ++v) {
          all.push_back(static_cast<VariableId>(v));
          reads.push_back(g.Read(all.back()));
        }
        const Output update =
            Sgd(replica, "sgd", all,
                replica.MeanGradients(graph::Gradients(loss, reads)),
                g.Scalar(0.01, DType::kF64), {.momentum = 0.0});
        return StepOutputs{.values = {{"hidden", hidden}, {"y", y}},
                           .updates = {update}};
      });
  // the parts of the whole's first values
  runtime::VariableStore& store = replicator->variables();
  for (int i = 0; i < parts; ++i) {
    const auto set = [&](const std::string& name, int layer, int64_t row,
                         int64_t column) {
      HostTensor value = store.Get(name);
      RandomStream unused(1, "unused");
      PartOf(layer, row, column)(unused, value.mutable_view());
      store.Set(name, value.view());
    };
    const int64_t size = kHidden / parts;
    set(fmt::format("up/{}/weight", i), 0, i * size, 0);
    set(fmt::format("up/{}/bias", i), 0, i * size, 0);
    set(fmt::format("down/{}/weight", i), 1, 0, i * size);
    if (i == 0) set("down/0/bias", 1, 0, 0);
  }
  EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  return {.hidden = Values(*step, "hidden"),
          .y = Values(*step, "y"),
          .variables = VariablesOf<double>(*replicator)};
}

// Row-major [rows, n] parts side by side.
std::vector<double> SideBySide(const std::vector<std::vector<double>>& parts,
                               size_t rows) {
  std::vector<double> whole;
  for (size_t row = 0; row < rows; ++row) {
    for (const auto& part : parts) {
      const auto width = static_cast<std::ptrdiff_t>(part.size() / rows);
      const auto begin =
          part.begin() + static_cast<std::ptrdiff_t>(row) * width;
      whole.insert(whole.end(), begin, begin + width);
    }
  }
  return whole;
}

TEST(SplitDenseTest, PartsComputeAndLearnWhatTheWholeDoes) {
  const Trained whole = Train(0, 1);
  for (const int parts : {1, 2, 4}) {
    const Trained split = Train(parts, parts);
    // each element of a column is one dot product
    EXPECT_EQ(split.hidden, whole.hidden) << parts;
    EXPECT_LE(NormOfDifference(split.y, whole.y), 1e-12) << parts;
    std::vector<double> up, up_bias;
    std::vector<std::vector<double>> down;
    for (int i = 0; i < parts; ++i) {
      const auto& weight = split.variables.at(fmt::format("up/{}/weight", i));
      up.insert(up.end(), weight.begin(), weight.end());
      const auto& bias = split.variables.at(fmt::format("up/{}/bias", i));
      up_bias.insert(up_bias.end(), bias.begin(), bias.end());
      down.push_back(split.variables.at(fmt::format("down/{}/weight", i)));
    }
    const auto off = [&](const std::vector<double>& value,
                         const std::string& name) {
      return NormOfDifference(value, whole.variables.at(name));
    };
    EXPECT_LE(off(up, "up/weight"), 1e-12);
    EXPECT_LE(off(up_bias, "up/bias"), 1e-12);
    EXPECT_LE(off(SideBySide(down, kOut), "down/weight"), 1e-12);
    EXPECT_LE(off(split.variables.at("down/0/bias"), "down/bias"), 1e-12);
    EXPECT_NE(split.variables.at("down/0/bias")[0], ValueAt(1, 0, -1));
  }
}

TEST(SplitDenseTest, RefusesUnitsThatCannotBeDivided) {
  Graph g;
  const graph::CallSite site{"model.cc", 3};
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { ColumnDense(g, "up", 3, 8, 3, {}, site); }),
            "model.cc:3: ColumnDense 'up': 8 units cannot be divided evenly "
            "among 3 devices");
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { RowDense(g, "down", 8, 3, 5, {}, site); }),
            "model.cc:3: RowDense 'down': 8 units cannot be divided evenly "
            "among 5 devices");
}

}  // namespace
}  // namespace replicant::nn
