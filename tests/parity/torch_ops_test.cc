// Every op's value and gradients against PyTorch's, in float64 on the reference
// backend and in f32 on every built one. scripts/goldens/make_torch.py has the
// cases.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/tensor/safetensors.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"
#include "tests/parity/golden_error.h"
#include "tests/support/graph_runner.h"
#include "tests/support/source_folder.h"

namespace replicant::graph {
namespace {

using testing::ErrorTable;
using testing::GraphRunner;
using testing::RelativeError;
using Inputs = std::vector<Output>;
using Build = Output (*)(const Inputs&);

// Rounding errors of a case may add up to this many units of half an epsilon:
// the longest sum has 135 terms, and norms and softmax cancel a digit or two.
constexpr double kRoundings = 1000.0;

double Tolerance(DType dtype) {
  return kRoundings * (dtype == DType::kF64 ? 0x1p-53 : 0x1p-24);
}

std::map<std::string, Build> MatrixCases() {
  return {
      {"matmul/plain", [](const Inputs& x) { return MatMul(x[0], x[1]); }},
      {"matmul/transposed_a",
       [](const Inputs& x) {
         return MatMul(x[0], x[1], {.transpose_a = true});
       }},
      {"matmul/transposed_b",
       [](const Inputs& x) {
         return MatMul(x[0], x[1], {.transpose_b = true});
       }},
      {"matmul/dense_elu",
       [](const Inputs& x) {
         return Elu(Add(MatMul(x[0], x[1], {.transpose_b = true}), x[2]));
       }},
      {"conv/3x3", [](const Inputs& x) { return Conv2d(x[0], x[1]); }},
      {"conv/4x4_stride_2_padding_1",
       [](const Inputs& x) {
         return Conv2d(x[0], x[1], {.stride = 2, .padding = 1});
       }},
      {"conv/5x3_batch_1", [](const Inputs& x) { return Conv2d(x[0], x[1]); }},
      {"conv/bias_relu_stride_2",
       [](const Inputs& x) {
         return Relu(Add(Conv2d(x[0], x[1], {.stride = 2}), x[2]));
       }},
  };
}

std::map<std::string, Build> PoolAndNormCases() {
  return {
      {"pool/max", [](const Inputs& x) { return MaxPool2d(x[0]); }},
      {"pool/max_overlapping",
       [](const Inputs& x) {
         return MaxPool2d(x[0], {.window = 3, .stride = 2, .padding = 1});
       }},
      {"pool/average", [](const Inputs& x) { return AveragePool2d(x[0]); }},
      {"pool/average_padded",
       [](const Inputs& x) {
         return AveragePool2d(x[0], {.window = 3, .stride = 2, .padding = 1});
       }},
      {"pool/global_average",
       [](const Inputs& x) { return GlobalAveragePool(x[0]); }},
      {"pool/upsample_nearest",
       [](const Inputs& x) { return UpsampleNearest2d(x[0], 2); }},
      {"norm/layer_norm",
       [](const Inputs& x) { return LayerNorm(x[0], x[1], x[2]); }},
      {"norm/layer_norm_tanh",
       [](const Inputs& x) { return Tanh(LayerNorm(x[0], x[1], x[2])); }},
      {"norm/batch_norm",
       [](const Inputs& x) { return BatchNorm(x[0], x[1], x[2]).y; }},
      {"norm/batch_norm_relu",
       [](const Inputs& x) {
         return BatchNorm(x[0], x[1], x[2], {.has_relu = true}).y;
       }},
      {"norm/batch_norm_residual_relu",
       [](const Inputs& x) {
         return BatchNorm(x[0], x[1], x[2],
                          {.has_relu = true, .residual = x[3]})
             .y;
       }},
      {"norm/conditional_batch_norm",
       [](const Inputs& x) { return BatchNorm(x[0], x[1], x[2]).y; }},
      {"norm/conditional_batch_norm_relu",
       [](const Inputs& x) {
         return BatchNorm(x[0], x[1], x[2], {.has_relu = true}).y;
       }},
      {"norm/spectral_norm",
       [](const Inputs& x) { return SpectralNorm(x[0], x[1]).y; }},
      {"norm/batch_norm_inference",
       [](const Inputs& x) {
         return BatchNormInference(x[0], x[1], x[2], x[3], x[4]);
       }},
  };
}

std::map<std::string, Build> ElementwiseCases() {
  return {
      {"elementwise/exp", [](const Inputs& x) { return Exp(x[0]); }},
      {"elementwise/log", [](const Inputs& x) { return Log(x[0]); }},
      {"elementwise/sqrt", [](const Inputs& x) { return Sqrt(x[0]); }},
      {"elementwise/sin", [](const Inputs& x) { return Sin(x[0]); }},
      {"elementwise/cos", [](const Inputs& x) { return Cos(x[0]); }},
      {"elementwise/tanh", [](const Inputs& x) { return Tanh(x[0]); }},
      {"elementwise/sigmoid", [](const Inputs& x) { return Sigmoid(x[0]); }},
      {"elementwise/softplus", [](const Inputs& x) { return Softplus(x[0]); }},
      {"elementwise/relu", [](const Inputs& x) { return Relu(x[0]); }},
      {"elementwise/elu", [](const Inputs& x) { return Elu(x[0]); }},
      {"elementwise/leaky_relu",
       [](const Inputs& x) { return LeakyRelu(x[0], 0.2); }},
      {"elementwise/abs", [](const Inputs& x) { return Abs(x[0]); }},
      {"elementwise/neg", [](const Inputs& x) { return Neg(x[0]); }},
      {"elementwise/square", [](const Inputs& x) { return Square(x[0]); }},
      {"elementwise/clip",
       [](const Inputs& x) { return Clip(x[0], -0.5, 0.5); }},
      {"elementwise/affine",
       [](const Inputs& x) { return Affine(x[0], 0.7, 0.3); }},
      {"elementwise/add", [](const Inputs& x) { return Add(x[0], x[1]); }},
      {"elementwise/sub", [](const Inputs& x) { return Sub(x[0], x[1]); }},
      {"elementwise/mul", [](const Inputs& x) { return Mul(x[0], x[1]); }},
      {"elementwise/div", [](const Inputs& x) { return Div(x[0], x[1]); }},
      {"elementwise/minimum",
       [](const Inputs& x) { return Minimum(x[0], x[1]); }},
      {"elementwise/maximum",
       [](const Inputs& x) { return Maximum(x[0], x[1]); }},
      {"elementwise/add_broadcast",
       [](const Inputs& x) { return Add(x[0], x[1]); }},
      {"elementwise/mul_broadcast",
       [](const Inputs& x) { return Mul(x[0], x[1]); }},
      {"elementwise/where",
       [](const Inputs& x) {
         return Where(Less(x[0], x[1]), Mul(x[0], x[1]), Add(x[0], x[1]));
       }},
  };
}

std::map<std::string, Build> ShapeCases() {
  return {
      {"reduce/sum",
       [](const Inputs& x) { return ReduceSum(x[0], {.axes = {1}}); }},
      {"reduce/mean_all", [](const Inputs& x) { return ReduceMean(x[0]); }},
      {"reduce/mean_keep",
       [](const Inputs& x) {
         return ReduceMean(x[0], {.axes = {0, 2}, .keep_dims = true});
       }},
      {"reduce/max",
       [](const Inputs& x) { return ReduceMax(x[0], {.axes = {2}}); }},
      {"reduce/min",
       [](const Inputs& x) {
         return ReduceMin(x[0], {.axes = {0, 1}});
       }},
      {"shape/reshape",
       [](const Inputs& x) {
         return Reshape(x[0], {4, 15});
       }},
      {"shape/transpose",
       [](const Inputs& x) {
         return Transpose(x[0], {2, 0, 1});
       }},
      {"shape/concat",
       [](const Inputs& x) {
         return Concat({x[0], x[1]}, 1);
       }},
      {"shape/slice",
       [](const Inputs& x) {
         return Slice(x[0], {1, 0, 2}, {2, 2, 3});
       }},
      {"shape/pad",
       [](const Inputs& x) {
         return Pad(x[0], {2, 0, 1}, {1, 2, 0}, 0.5);
       }},
  };
}

std::map<std::string, Build> OtherCases() {
  return {
      {"losses/softmax", [](const Inputs& x) { return Softmax(x[0]); }},
      {"losses/log_softmax", [](const Inputs& x) { return LogSoftmax(x[0]); }},
      {"losses/cross_entropy",
       [](const Inputs& x) { return SoftmaxCrossEntropy(x[0], x[1]); }},
      {"losses/cross_entropy_labels",
       [](const Inputs& x) {
         return SoftmaxCrossEntropyWithLabels(x[0], x[1]);
       }},
      {"losses/cross_entropy_smoothed",
       [](const Inputs& x) {
         return SoftmaxCrossEntropyWithLabels(x[0], x[1], 0.1);
       }},
      {"losses/categorical_projection",
       [](const Inputs& x) {
         return CategoricalProjection(x[0], x[1], x[2], 0.0, 10.0);
       }},
      {"indexing/gather", [](const Inputs& x) { return Gather(x[0], x[1]); }},
      {"indexing/one_hot",
       [](const Inputs& x) { return OneHot(x[0], 6, DType::kF32); }},
      {"image/normalize_pixels",
       [](const Inputs& x) { return NormalizePixels(x[0], DType::kF32); }},
      {"image/random_shift",
       [](const Inputs& x) { return RandomShift(x[0], x[1]); }},
      {"optimizer/clip_rows_by_norm",
       [](const Inputs& x) { return ClipRowsByNorm(x[0], 1.5); }},
  };
}

std::map<std::string, Build> AllCases() {
  std::map<std::string, Build> all;
  for (auto cases : {MatrixCases(), PoolAndNormCases(), ElementwiseCases(),
                     ShapeCases(), OtherCases()}) {
    all.merge(cases);
  }
  return all;
}

// A backend with the dtype that it is to compute in.
struct Target {
  std::string backend;
  DType dtype;
};

std::vector<Target> Targets() {
  std::vector<Target> targets = {{"reference", DType::kF64}};
  for (const std::string& name : kernels::BuiltBackends()) {
    targets.push_back({name, DType::kF32});
  }
  return targets;
}

std::string NameOf(const Target& target) {
  return target.backend + "_" + std::string(DTypeName(target.dtype));
}

SafetensorsReader Goldens() {
  return SafetensorsReader(testing::SourceFolder(REPLICANT_SOURCE_DIR) /
                           "tests/golden/torch/ops.safetensors");
}

// A golden tensor; a floating one as `dtype`.
HostTensor ReadAs(const SafetensorsReader& goldens, const std::string& name,
                  DType dtype) {
  HostTensor tensor = goldens.Read(name);
  if (tensor.dtype() != DType::kF64) return tensor;
  return testing::Values(dtype, tensor.shape(),
                         testing::ToDoubles(tensor.view()));
}

class TorchOpsTest : public ::testing::TestWithParam<Target> {
 protected:
  void ExpectNear(const std::string& name, TensorView actual,
                  double tolerance) {
    const double error = RelativeError(actual, goldens_.Read(name).view());
    EXPECT_LE(error, tolerance) << name;
    const bool is_gradient = name.find("gradient") != std::string::npos;
    table_.Add(name.substr(0, name.find('/')),
               is_gradient ? "gradient" : "forward", error);
  }

  void RunCase(const std::string& name, Build build) {
    SCOPED_TRACE(name);
    const DType dtype = GetParam().dtype;
    GraphRunner runner(GetParam().backend);
    Inputs inputs;
    std::vector<std::string> wanted;
    Inputs differentiated;
    for (int i = 0; goldens_.Has(fmt::format("{}/input{}", name, i)); ++i) {
      const std::string input = fmt::format("{}/input{}", name, i);
      inputs.push_back(runner.Input(input, ReadAs(goldens_, input, dtype)));
      const std::string gradient = fmt::format("{}/gradient{}", name, i);
      if (!goldens_.Has(gradient)) continue;
      wanted.push_back(gradient);
      differentiated.push_back(inputs.back());
    }
    std::vector<Output> outputs = {build(inputs)};
    if (!wanted.empty()) {
      const Output weight = runner.graph().Constant(
          ReadAs(goldens_, name + "/weight", dtype).view());
      const Output loss = ReduceSum(Mul(weight, outputs[0]));
      const Inputs gradients = Gradients(loss, differentiated);
      outputs.insert(outputs.end(), gradients.begin(), gradients.end());
    }
    const auto plan = runner.Compile({.outputs = outputs});
    plan->Run();
    // an op that makes f32 of integers makes it everywhere
    ExpectNear(name + "/output", plan->output(0),
               Tolerance(outputs[0].dtype()));
    for (size_t i = 0; i < wanted.size(); ++i) {
      ExpectNear(wanted[i], plan->output(i + 1), Tolerance(dtype));
    }
  }

  SafetensorsReader goldens_ = Goldens();
  ErrorTable table_;
};

TEST_P(TorchOpsTest, ValuesAndGradientsAreThoseOfPyTorch) {
  for (const auto& [name, build] : AllCases()) RunCase(name, build);
  table_.Print(NameOf(GetParam()));
}

// An optimizer's update of `parameter` by `gradient`, with these slots.
using BuildUpdate = Output (*)(Graph&, VariableId, Output gradient,
                               Output step);

Output AddAdam(Graph& graph, VariableId p, Output gradient, Output step,
               double weight_decay, double clip) {
  nn::SingleReplica replica(graph);
  return nn::Adam(replica, "optimizer", {p}, {gradient},
                  graph.Scalar(0.0078125, graph::ScalarDType(gradient.dtype())),
                  step, {.weight_decay = weight_decay},
                  {.max_global_norm = clip});
}

std::map<std::string, BuildUpdate> OptimizerCases() {
  return {
      {"optimizer/sgd",
       [](Graph& graph, VariableId p, Output gradient, Output) {
         nn::SingleReplica replica(graph);
         return nn::Sgd(
             replica, "optimizer", {p}, {gradient},
             graph.Scalar(0.125, graph::ScalarDType(gradient.dtype())),
             {.weight_decay = 0.01});
       }},
      {"optimizer/sgd_nesterov",
       [](Graph& graph, VariableId p, Output gradient, Output) {
         nn::SingleReplica replica(graph);
         return nn::Sgd(
             replica, "optimizer", {p}, {gradient},
             graph.Scalar(0.125, graph::ScalarDType(gradient.dtype())),
             {.momentum = 0.9, .nesterov = true});
       }},
      {"optimizer/adam",
       [](Graph& graph, VariableId p, Output gradient, Output step) {
         return AddAdam(graph, p, gradient, step, 0.0, 0.0);
       }},
      {"optimizer/adamw",
       [](Graph& graph, VariableId p, Output gradient, Output step) {
         return AddAdam(graph, p, gradient, step, 0.1, 0.0);
       }},
      {"optimizer/adam_clipped",
       [](Graph& graph, VariableId p, Output gradient, Output step) {
         return AddAdam(graph, p, gradient, step, 0.0, 1.0);
       }},
  };
}

TEST_P(TorchOpsTest, ThreeUpdatesOfEveryOptimizerAreThoseOfPyTorch) {
  const DType dtype = GetParam().dtype;
  for (const auto& [name, build] : OptimizerCases()) {
    SCOPED_TRACE(name);
    GraphRunner runner(GetParam().backend);
    Graph& graph = runner.graph();
    const HostTensor first = ReadAs(goldens_, name + "/input0", dtype);
    const VariableId parameter = graph.AddVariable(
        {.name = "p", .dtype = dtype, .shape = first.shape()});
    const Output gradient = graph.Input("gradient", dtype, first.shape());
    const nn::StepCounter step = nn::AddStepCounter(graph);
    const Output update = build(graph, parameter, gradient, step.value);
    const auto plan = runner.Compile({.updates = {update, step.advance}});
    runner.store().Set("p", first.view());
    for (int i = 1; i <= 3; ++i) {
      const HostTensor value =
          ReadAs(goldens_, fmt::format("{}/input{}", name, i), dtype);
      const MutableTensorView input = plan->input("gradient");
      std::copy_n(value.bytes().data(), value.size_bytes(), input.data());
      plan->Run();
    }
    // the clip factor is f32 whatever the parameters are
    const bool is_clipped = name == "optimizer/adam_clipped";
    ExpectNear(name + "/output", runner.store().Get("p").view(),
               Tolerance(is_clipped ? DType::kF32 : dtype));
  }
  table_.Print(NameOf(GetParam()));
}

// A case of the file without a test here would never be looked at.
TEST(TorchOpsCoverageTest, EveryCaseOfTheGoldensIsTested) {
  std::set<std::string> tested;
  for (const auto& [name, build] : AllCases()) tested.insert(name);
  for (const auto& [name, build] : OptimizerCases()) tested.insert(name);
  std::set<std::string> recorded;
  const SafetensorsReader goldens = Goldens();
  for (const SafetensorsInfo& info : goldens.tensors()) {
    recorded.insert(info.name.substr(0, info.name.rfind('/')));
  }
  EXPECT_EQ(tested, recorded);
}

INSTANTIATE_TEST_SUITE_P(Backends, TorchOpsTest, ::testing::ValuesIn(Targets()),
                         [](const ::testing::TestParamInfo<Target>& param) {
                           return NameOf(param.param);
                         });

}  // namespace
}  // namespace replicant::graph
