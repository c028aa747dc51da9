// Every op case on the CUDA backend without a GPU: its host code on a driver
// that checks each call, its own kernels compiled for the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/core/kernels/op_parity.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/message_of.h"

namespace replicant::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::OpCase;

// The cases of ops without a CUDA kernel, by the start of their names.
constexpr std::string_view kWithoutKernel[] = {"Conv2d", "PixelConv2d"};

bool HasKernel(const OpCase& op_case) {
  return std::none_of(
      std::begin(kWithoutKernel), std::end(kWithoutKernel),
      [&](std::string_view start) { return op_case.name.starts_with(start); });
}

class CudaParity : public ::testing::TestWithParam<OpCase> {
 protected:
  // What the driver saw must be in order, whatever the test did.
  void TearDown() override {
    backend_.reset();
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }

  const std::shared_ptr<testing::FakeDriver> driver_ =
      std::make_shared<testing::FakeDriver>();
  std::unique_ptr<Backend> backend_ = testing::MakeFakeCudaBackend(driver_);
};

TEST_P(CudaParity, MatchesTheReference) {
  testing::ExpectMatchesReference(GetParam(), *backend_);
}

TEST_P(CudaParity, MatchesTheReferenceInBF16) {
  testing::ExpectMatchesReferenceInBF16(GetParam(), *backend_);
}

std::vector<OpCase> Cases(bool has_kernel) {
  std::vector<OpCase> cases = testing::AllOpCases();
  std::erase_if(cases,
                [&](const OpCase& c) { return HasKernel(c) != has_kernel; });
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<OpCase>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaParity, ::testing::ValuesIn(Cases(true)),
                         CaseName);

// A row that gets its kernel has to leave the table above.
TEST(CudaParityTest, AnOpWithoutAKernelIsNamed) {
  const auto driver = std::make_shared<testing::FakeDriver>();
  const auto backend = testing::MakeFakeCudaBackend(driver);
  for (const OpCase& op_case : Cases(false)) {
    EXPECT_THAT(testing::MessageOf([&] {
                  testing::ExpectMatchesReference(op_case, *backend);
                }),
                HasSubstr("there is no kernel for this op"))
        << op_case.name;
  }
}

}  // namespace
}  // namespace replicant::kernels
