#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/host_candidate.h"

namespace replicant::testing {

// A library of CUDA with plans of class HostPlan, made of the driver, a problem
// and its candidate. Interface has the functions of
// kernels::cuda::MatMulLibrary, for its problems and plans.
template <typename Interface, typename Problem, typename PlanInterface,
          typename HostPlan>
class HostLibrary : public Interface {
 public:
  HostLibrary(std::shared_ptr<FakeDriver> driver,
              HostCandidates<Problem> candidates, std::string version)
      : driver_(std::move(driver)),
        candidates_(std::move(candidates)),
        version_(std::move(version)) {}

  std::unique_ptr<PlanInterface> Plan(const Problem& problem) override {
    return std::move(Candidates(problem, /*max=*/1)[0]);
  }
  std::vector<std::unique_ptr<PlanInterface>> Candidates(const Problem& problem,
                                                         int max) override {
    std::vector<std::unique_ptr<PlanInterface>> plans;
    for (const HostCandidate& candidate : candidates_(problem)) {
      if (std::ssize(plans) == max) break;
      plans.push_back(std::make_unique<HostPlan>(driver_, problem, candidate));
    }
    return plans;
  }
  std::unique_ptr<PlanInterface> PlanNamed(const Problem& problem,
                                           const std::string& name) override {
    for (const HostCandidate& candidate : candidates_(problem)) {
      if (candidate.name == name) {
        return std::make_unique<HostPlan>(driver_, problem, candidate);
      }
    }
    return nullptr;
  }
  std::string version() override { return version_; }

 private:
  const std::shared_ptr<FakeDriver> driver_;
  const HostCandidates<Problem> candidates_;
  const std::string version_;
};

}  // namespace replicant::testing
