// Every op, forward and gradient, on every built backend: in f32 against the
// reference in f64, and in bf16 against the reference in bf16.
#include "tests/engine/kernels/op_parity.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace replicant::kernels {
namespace {

using testing::OpCase;

class OpParity
    : public ::testing::TestWithParam<std::tuple<std::string, int, OpCase>> {
 protected:
  static void TearDownTestSuite() { made_backends.clear(); }

  // One for all cases: a GPU's takes a while to start.
  Backend& backend() {
    const auto& [name, num_threads, op_case] = GetParam();
    std::unique_ptr<Backend>& result = made_backends[{name, num_threads}];
    if (result == nullptr) {
      result = MakeBackend(name, {.num_threads = num_threads});
    }
    return *result;
  }

  const OpCase op_case_ = std::get<2>(GetParam());

 private:
  static inline std::map<std::pair<std::string, int>, std::unique_ptr<Backend>>
      made_backends;
};

TEST_P(OpParity, MatchesTheReference) {
  testing::ExpectMatchesReference(op_case_, backend());
}

TEST_P(OpParity, MatchesTheReferenceInBF16) {
  testing::ExpectMatchesReferenceInBF16(op_case_, backend());
}

TEST_P(OpParity, TheSameThreadsGiveTheSameBits) {
  testing::ExpectSameBits(op_case_, backend());
}

std::vector<std::tuple<std::string, int, OpCase>> AllParameters() {
  std::vector<std::tuple<std::string, int, OpCase>> result;
  for (const OpCase& op_case : testing::AllOpCases()) {
    for (const std::string& backend : BuiltBackends()) {
      result.emplace_back(backend, 1, op_case);
      if (backend == "cpu") result.emplace_back(backend, 2, op_case);
    }
  }
  return result;
}

std::string CaseName(
    const ::testing::TestParamInfo<OpParity::ParamType>& parameter) {
  const auto& [backend_name, num_threads, op_case] = parameter.param;
  return backend_name + std::to_string(num_threads) + "_" + op_case.name;
}

INSTANTIATE_TEST_SUITE_P(Backends, OpParity,
                         ::testing::ValuesIn(AllParameters()), CaseName);

}  // namespace
}  // namespace replicant::kernels
