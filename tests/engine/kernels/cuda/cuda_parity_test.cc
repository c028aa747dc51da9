// Every op case on the CUDA backend without a GPU: its host code on a driver
// that checks each call, its own kernels compiled for the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/kernels/op_parity.h"
#include "tests/support/fake_cuda/fake_backend.h"

namespace replicant::kernels {
namespace {

using ::testing::IsEmpty;
using testing::OpCase;

class CudaParity : public ::testing::TestWithParam<OpCase> {
 protected:
  // The driver must have seen no faulty call, whatever the test did.
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

// Batch norms, which fuse_norms gives other kernels.
class CudaNorms : public CudaParity {};

TEST_P(CudaNorms, FuseNormsChangesNoBit) {
  testing::ExpectPassChangesNoBit(GetParam(), "fuse_norms", *backend_);
}

std::vector<OpCase> NormCases() {
  std::vector<OpCase> cases;
  for (OpCase& op_case : testing::AllOpCases()) {
    if (op_case.name.starts_with("BatchNorm")) {
      cases.push_back(std::move(op_case));
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<OpCase>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaParity,
                         ::testing::ValuesIn(testing::AllOpCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Norms, CudaNorms, ::testing::ValuesIn(NormCases()),
                         CaseName);

}  // namespace
}  // namespace replicant::kernels
