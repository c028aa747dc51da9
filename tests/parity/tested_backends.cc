#include "tests/parity/tested_backends.h"

#include <gmock/gmock.h>

#ifdef REPLICANT_HAS_CUDA
#include "tests/support/fake_cuda/fake_backend.h"
#endif

namespace replicant::testing {

#ifdef REPLICANT_HAS_CUDA
namespace {

constexpr const char* kFakeCuda = "fake_cuda";

TestedBackend MakeFakeCuda() {
  const auto driver = std::make_shared<FakeDriver>();
  return {MakeFakeCudaBackend(driver, MakeHostAndDeviceCompiler()).release(),
          [driver](const kernels::Backend* backend) {
            delete backend;
            EXPECT_THAT(driver->problems(), ::testing::IsEmpty());
            EXPECT_THAT(driver->live(), ::testing::IsEmpty());
          }};
}

}  // namespace
#endif

std::vector<std::string> TestedBackends() {
  std::vector<std::string> names = kernels::BuiltBackends();
#ifdef REPLICANT_HAS_CUDA
  names.emplace_back(kFakeCuda);
#endif
  return names;
}

TestedBackend MakeTestedBackend(const std::string& name) {
#ifdef REPLICANT_HAS_CUDA
  if (name == kFakeCuda) return MakeFakeCuda();
#endif
  return {kernels::MakeBackend(name).release(),
          std::default_delete<const kernels::Backend>()};
}

}  // namespace replicant::testing
