// The libraries of NVIDIA that are installed beside the toolkit, as far as they
// work without a device.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/kernels/cuda/elementwise_source.h"
#include "core/kernels/cuda/matmul_library.h"
#include "core/kernels/cuda/source_compiler.h"
#include "core/kernels/cuda_backend.h"
#include "tests/support/message_of.h"

namespace replicant::kernels::cuda {
namespace {

using graph::ScalarOp;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MessageOf;
using ::testing::StartsWith;

// Every scalar op on every dtype that it may meet.
TEST(CudaLibrariesTest, NvrtcCompilesEveryScalarOp) {
  const auto nvrtc = LoadNvrtc();
  // one source for each dtype: a chain of all ops of its arity
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8, DType::kI32,
                            DType::kI64, DType::kBool}) {
    graph::ScalarProgram program{.num_inputs = 3};
    for (int i = 0; i < graph::kNumScalarOps; ++i) {
      program.instructions.push_back({.op = static_cast<ScalarOp>(i),
                                      .dtype = dtype,
                                      .operands = {0, 1, 2},
                                      .p = 0.5,
                                      .q = 1.5});
    }
    const graph::TensorType type{dtype, Shape({5, 7})};
    const graph::TensorType row{dtype, Shape({7})};
    const std::vector<graph::TensorType> inputs = {type, row, type};
    const std::string source = ElementwiseSource(program, inputs, type);
    EXPECT_THAT(nvrtc->Compile(source, /*compute_capability=*/90),
                StartsWith("\x7F"
                           "ELF"))
        << DTypeName(dtype);
  }
}

TEST(CudaLibrariesTest, NvrtcSaysWhatIsWrongAndWhere) {
  const auto nvrtc = LoadNvrtc();
  EXPECT_THAT(MessageOf([&] { nvrtc->Compile("int x = y;", 90); }),
              AllOf(StartsWith("nvrtcCompileProgram: NVRTC_ERROR_COMPILATION"),
                    HasSubstr("generated.cu(1): error: identifier \"y\" is "
                              "undefined"),
                    HasSubstr("int x = y;")));
}

// Its entry points are found; its handle needs a device.
TEST(CudaLibrariesTest, CublasLtLoadsAndNamesTheCallThatFails) {
  if (HasCudaDevice()) GTEST_SKIP() << "this machine has a CUDA device";
  const auto library = LoadCublasLt();
  EXPECT_THAT(MessageOf([&] { library->Plan({.m = 2, .n = 3, .k = 4}); }),
              StartsWith("cublasLtCreate: "));
}

}  // namespace
}  // namespace replicant::kernels::cuda
