// Every op case on the CUDA backend without a GPU: its host code on a driver
// that checks each call, its own kernels compiled for the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
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

// Ops that the backend refuses (core/graph/ops/linalg.h).
constexpr std::string_view kWithoutKernel[] = {"BatchMatMul", "CholeskySolve"};

std::vector<OpCase> Cases(bool has_kernel) {
  std::vector<OpCase> cases = testing::AllOpCases();
  std::erase_if(cases, [&](const OpCase& op_case) {
    return has_kernel == std::ranges::any_of(kWithoutKernel, [&](auto op) {
             return op_case.name.starts_with(op);
           });
  });
  return cases;
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

TEST(CudaParityTest, OpsWithoutAKernelAreRefused) {
  const auto cases = Cases(/*has_kernel=*/false);
  ASSERT_FALSE(cases.empty());
  for (const OpCase& op_case : cases) {
    const auto backend =
        testing::MakeFakeCudaBackend(std::make_shared<testing::FakeDriver>());
    EXPECT_THAT(testing::MessageOf([&] {
                  testing::ExpectMatchesReference(op_case, *backend);
                }),
                HasSubstr("there is no kernel for this op"))
        << op_case.name;
  }
}

std::string CaseName(const ::testing::TestParamInfo<OpCase>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaParity,
                         ::testing::ValuesIn(Cases(/*has_kernel=*/true)),
                         CaseName);

}  // namespace
}  // namespace replicant::kernels
