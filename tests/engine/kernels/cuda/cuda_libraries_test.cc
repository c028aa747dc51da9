// NVIDIA's libraries that are installed next to the toolkit, as far as they
// work without a device.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/elementwise_source.h"
#include "engine/kernels/cuda/matmul_library.h"
#include "engine/kernels/cuda/nccl_library.h"
#include "engine/kernels/cuda/source_compiler.h"
#include "engine/kernels/cuda_backend.h"
#include "tests/support/h100.h"
#include "tests/support/message_of.h"

namespace replicant::kernels::cuda {
namespace {

using graph::ScalarOp;
using ::testing::AllOf;
using ::testing::EndsWith;
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
    const std::string source = ElementwiseSource(program, inputs, type).text;
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

// What NCCL does without a device.
TEST(CudaLibrariesTest, NcclHasItsEntryPointsAndMakesUniqueIds) {
  const auto nccl = MakeNccl();
  EXPECT_THAT(nccl->version(), StartsWith("2."));
  const std::string id = nccl->NewUniqueId();
  EXPECT_EQ(id.size(), 128U);
  EXPECT_NE(nccl->NewUniqueId(), id);
  // with a device it would wait for the other rank
  if (NumCudaDevices() > 0) return;
  EXPECT_THAT(MessageOf<DeviceError>([&] {
                static_cast<void>(nccl->Join(id, /*rank=*/0, /*size=*/2));
              }),
              StartsWith("ncclCommInitRankConfig: "));
}

// tests/engine/kernels/cuda/old_nccl.cc
TEST(CudaLibrariesTest, AnOldNcclIsRefusedWithBothVersions) {
  const auto nccl = MakeNccl(REPLICANT_OLD_NCCL);
  const auto refuses = AllOf(StartsWith("NCCL 2.18.1 is installed, want 2."),
                             EndsWith(" or newer; hint: update NCCL, or set "
                                      "learner.replication.collectives: host"));
  EXPECT_THAT(MessageOf<DeviceError>([&] { nccl->version(); }), refuses);
  // catches a library that is taken when it is asked again
  EXPECT_THAT(MessageOf<DeviceError>([&] { nccl->NewUniqueId(); }), refuses);
}

TEST(CudaLibrariesTest, ANcclThatIsMissingIsNamedWithAHint) {
  EXPECT_THAT(
      MessageOf<DeviceError>([] { MakeNccl("libno_nccl.so.2")->version(); }),
      AllOf(StartsWith("cannot load libno_nccl.so.2: "),
            EndsWith("; hint: install NCCL 2, name its folder in "
                     "LD_LIBRARY_PATH, or set "
                     "learner.replication.collectives: host")));
}

// Plans of real layers for an H100 that is not there: the first layers of the
// encoders of D4PG, and layers of ResNet-50 and SN-GAN.
TEST(CudaLibrariesTest, CudnnPlansConvolutionsForADescribedH100) {
  const auto cudnn = MakeCudnn(testing::kH100);
  struct Layer {
    int64_t b, size, c, o, k, stride, padding;
  };
  for (const Layer l :
       {Layer{256, 84, 9, 32, 8, 4, 0},   // Nature
        Layer{256, 84, 9, 32, 3, 2, 0},   // DrQ
        Layer{256, 41, 32, 32, 3, 1, 0},  // DrQ
        Layer{128, 224, 3, 64, 7, 2, 3},  // ResNet-50
        Layer{128, 56, 64, 64, 3, 1, 1}, Layer{128, 56, 256, 64, 1, 1, 0},
        Layer{128, 28, 256, 512, 1, 2, 0},
        Layer{64, 32, 3, 128, 3, 1, 1}}) {  // SN-GAN
    const int64_t y = (l.size + 2 * l.padding - l.k) / l.stride + 1;
    for (const ConvolutionKind kind :
         {ConvolutionKind::kForward, ConvolutionKind::kInputGradient,
          ConvolutionKind::kWeightGradient}) {
      ConvolutionProblem problem{.kind = kind,
                                 .b = l.b,
                                 .h = l.size,
                                 .w = l.size,
                                 .c = l.c,
                                 .o = l.o,
                                 .kh = l.k,
                                 .kw = l.k,
                                 .yh = y,
                                 .yw = y,
                                 .stride = l.stride,
                                 .padding = l.padding};
      const auto expect_planned = [&](DType dtype, bool is_fused) {
        SCOPED_TRACE(fmt::format("kind {}, size {}, channels {}, {}",
                                 static_cast<int>(kind), l.size, l.c,
                                 DTypeName(dtype)));
        problem.dtype = dtype;
        problem.has_bias = problem.has_relu = is_fused;
        const auto plan = cudnn->Plan(problem);
        ASSERT_NE(plan, nullptr);
        EXPECT_LE(plan->workspace_size_bytes(), size_t{256} << 20);
      };
      expect_planned(DType::kF32, /*is_fused=*/false);
      expect_planned(DType::kBF16, /*is_fused=*/false);
      if (kind == ConvolutionKind::kForward) {
        expect_planned(DType::kBF16, /*is_fused=*/true);
      }
      problem.allows_tf32 = true;
      expect_planned(DType::kF32, /*is_fused=*/false);
      if (kind == ConvolutionKind::kForward) {
        expect_planned(DType::kF32, /*is_fused=*/true);
      }
      problem.allows_tf32 = false;
    }
  }
}

TEST(CudaLibrariesTest, CudnnNamesTheCallThatFailsWithoutADevice) {
  if (NumCudaDevices() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const auto cudnn = MakeCudnn();
  EXPECT_THAT(MessageOf([&] { cudnn->Plan({}); }), StartsWith("cudnnCreate: "));
}

// Its entry points are found; its handle needs a device.
TEST(CudaLibrariesTest, CublasLtLoadsAndNamesTheCallThatFails) {
  if (NumCudaDevices() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const auto library = LoadCublasLt();
  EXPECT_THAT(MessageOf([&] { library->Plan({.m = 2, .n = 3, .k = 4}); }),
              StartsWith("cublasLtCreate: "));
}

}  // namespace
}  // namespace replicant::kernels::cuda
